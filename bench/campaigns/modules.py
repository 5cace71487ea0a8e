"""Damaged modules, each through what an upload goes through, and run if it is taken.

Bytes, sections, entries and code of real and small controllers are changed at random. All go through check,
rewriting, compiler and a worker in processes that may die; a part of them, and all on which one died, through
a real daemon beside a well-behaved request.
"""

from __future__ import annotations

import itertools
import json
import os
import queue
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aicirt.errors import ControllerError, ModuleError
from bench.campaigns.campaign import Campaign
from bench.campaigns.hostile import arena
from bench.campaigns.sacrifice import ARGUMENT, COMPILING, DONE, STAGE, case
from bench.campaigns.seeds import seed_modules
from bench.campaigns.stranger import GOES_ON, STOPS, Stranger
from bench.measure import percentile
from bench.report import ROOT

_CHUNK = 100
#: of a process, before another takes its place
_LIFE = 5000
#: nothing may take longer: compiling has a limit of 60 s of CPU time
_SILENCE_SECONDS = 150.0
#: how many of those refused and of those taken also go to the daemon: one in so many
_REFUSED, _TAKEN = 300, 60
_REFUSALS = ("check", "compile")


def run(campaign: Campaign) -> None:
    """A case is a module."""
    crowd = Crowd(campaign)
    seeds = seed_modules()
    with arena() as place:
        threads = [threading.Thread(target=crowd.work) for _ in range(crowd.width)]
        for thread in threads:
            thread.start()
        uploads: Counter[str] = Counter()
        for number, result in crowd.heard():
            end = result["end"]
            campaign.ended(end)
            if end.startswith("died"):
                print(f"case {number} of seed {campaign.seed} {end}", file=sys.stderr)
            if flaw := result.get("flaw"):
                campaign.failed(number, flaw, case("modules", campaign.seed, number, seeds)[0], ".wasm")
            if not _chosen(campaign, number, end):
                continue
            wasm, done = case("modules", campaign.seed, number, seeds)
            met = place.meet(Stranger(f"case {number}", ", ".join(done), _ANY, arg=ARGUMENT, module=wasm))
            refused = isinstance(met.error, ModuleError)
            uploads["refused" if refused else "taken"] += 1
            if refused != (end in _REFUSALS) and not end.startswith("died"):
                met.problems.append(f"it ended with {met.outcome}, in the other process with {end}")
            for problem in met.problems:
                campaign.failed(number, f"{', '.join(done)}: {problem}", wasm, ".wasm")
        for thread in threads:
            thread.join()
    campaign.figure("modules", campaign.done, "modules")
    campaign.figure("per_second", campaign.done / campaign.elapsed, "modules/s")
    campaign.figure("refused", sum(campaign.outcomes[name] for name in _REFUSALS), "modules")
    campaign.figure(
        "taken", sum(n for name, n in campaign.outcomes.items() if name not in _REFUSALS), "modules"
    )
    for name, count in sorted(campaign.outcomes.items()):
        campaign.figure(f"ended.{name.replace(' ', '_')}", count, "modules")
    campaign.figure("through_daemon.refused", uploads["refused"], "modules")
    campaign.figure("through_daemon.taken", uploads["taken"], "modules")
    for name, times in crowd.times.items():
        campaign.figure(f"{name}_p99_ms", 1e3 * percentile(times, 99), "ms")
        campaign.figure(f"{name}_max_ms", 1e3 * max(times), "ms")


def _chosen(campaign: Campaign, number: int, end: str) -> bool:
    """Whether a case goes through the daemon, too: some do, and all on which a process died."""
    one_in = _REFUSED if end in _REFUSALS else _TAKEN
    return (
        end.startswith("died") or campaign.only is not None or campaign.random(number).random() * one_in < 1
    )


def _codes(base: type[Any]) -> Iterator[str]:
    yield base.code
    for kind in base.__subclasses__():
        yield from _codes(kind)


#: whatever is a controller's own fault, or the module's
_ANY = " ".join([*_codes(ControllerError), *_codes(ModuleError), GOES_ON, STOPS])


class Crowd:
    """Processes that are fed with cases, each by a thread, and replaced when they die."""

    def __init__(self, campaign: Campaign) -> None:
        self._campaign = campaign
        #: one core is for the daemon
        self.width = max(1, min(8, len(os.sched_getaffinity(0)) - 1))
        self._cases = campaign.cases()
        self._lock = threading.Lock()
        self._results: queue.Queue[tuple[int, dict[str, Any]] | None] = queue.Queue(2000)
        #: seconds of each stage
        self.times: dict[str, list[float]] = {"check": [], "compile": []}

    def heard(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Number and result of each case, as they come."""
        working = self.width
        while working:
            item = self._results.get()
            if item is None:
                working -= 1
                continue
            number, result = item
            for name, times in self.times.items():
                if f"{name}_s" in result:
                    times.append(result[f"{name}_s"])
            yield number, result

    def work(self) -> None:
        """Feeds one process after the other, until there are no more cases."""
        try:
            while chunks := self._chunks():
                self._live(chunks)
        finally:
            self._results.put(None)

    def _chunks(self) -> list[tuple[int, int]]:
        """Cases for the life of one process."""
        chunks = []
        with self._lock:
            for _ in range(_LIFE // _CHUNK):
                numbers = list(itertools.islice(self._cases, _CHUNK))
                if not numbers:
                    break
                chunks.append((numbers[0], numbers[-1] + 1))
        return chunks

    def _live(self, chunks: list[tuple[int, int]]) -> None:
        with tempfile.NamedTemporaryFile() as stage:
            stage.write(bytes(STAGE.size))
            stage.flush()
            child: Child | None = None
            for first, last in chunks:
                if self._campaign.over:
                    break
                while first < last:
                    child = child or Child(self._campaign.seed, Path(stage.name))
                    for result in child.ask(first, last):
                        first = result.pop("case") + 1
                        self._results.put((first - 1, result))
                    if first < last:  # it died, or was silent, in this case
                        first = self._dead(child, first)
                        child = None
            if child is not None:
                child.close()

    def _dead(self, child: Child, expected: int) -> int:
        """What to make of the end of a process; the number of the next case."""
        status = child.close()
        number, at = STAGE.unpack(child.stage.read_bytes())
        if at == DONE or number != expected:
            self._results.put((expected, {"end": "died elsewhere", "flaw": f"a process ended with {status}"}))
            return expected + 1
        result: dict[str, Any] = {"end": f"died {status}"}
        # while it compiles it may: the runtime's own child does, and the upload ends with a typed error
        if at != COMPILING or child.silent:
            result["flaw"] = f"a process ended with status {status} in stage {at}{', silent' * child.silent}"
        self._results.put((number, result))
        return int(number) + 1


class Child:
    """One `bench.campaigns.sacrifice`."""

    def __init__(self, seed: int, stage: Path) -> None:
        self.stage = stage
        self.silent = False
        command = [sys.executable, "-m", "bench.campaigns.sacrifice", "modules", str(seed), str(stage)]
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._rest = b""

    def ask(self, first: int, last: int) -> Iterator[dict[str, Any]]:
        """The results of these cases, or of some, if it dies."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{first} {last}\n".encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            return
        while (line := self._line()) is not None:
            result = json.loads(line)
            if not result:
                return
            yield result

    def _line(self) -> bytes | None:
        assert self._process.stdout is not None
        fd, end = self._process.stdout.fileno(), time.monotonic() + _SILENCE_SECONDS
        while b"\n" not in self._rest:
            readable, _, _ = select.select([fd], [], [], max(0.0, end - time.monotonic()))
            if not readable:
                self.silent = True
                return None
            data = os.read(fd, 1 << 16)
            if not data:
                return None
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def close(self) -> str:
        """Ends it; how it ended."""
        assert self._process.stdin is not None and self._process.stdout is not None
        if self.silent:
            self._process.kill()
        self._process.stdin.close()
        status = self._process.wait()
        self._process.stdout.close()
        return signal.Signals(-status).name if status < 0 else str(status)
