"""Processes that are fed with damaged modules, and replaced when they die."""

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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.campaigns.campaign import Campaign
from bench.campaigns.sacrifice import COMPILING, DONE, STAGE
from bench.report import ROOT

_CHUNK = 100
#: of a process, before another takes its place
_LIFE = 5000
#: nothing may take longer: compiling has a limit of 60 s of CPU time
_SILENCE_SECONDS = 150.0


class Crowd:
    """So many processes as there are cores to spare, each fed by a thread."""

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
            flaw = f"a process ended with status {status} between two cases: {child.said}"
            self._results.put((expected, {"end": "died elsewhere", "flaw": flaw}))
            return expected + 1
        result: dict[str, Any] = {"end": f"died {status}"}
        # while it compiles it may: the runtime's own child does, and the upload ends with a typed error
        if at != COMPILING or child.silent:
            silent = " after a long silence" * child.silent
            result["flaw"] = f"a process ended with status {status} in stage {at}{silent}: {child.said}"
        self._results.put((number, result))
        return int(number) + 1


class Child:
    """One `bench.campaigns.sacrifice`."""

    def __init__(self, seed: int, stage: Path) -> None:
        self.stage = stage
        self.silent = False
        self._said = tempfile.TemporaryFile()  # noqa: SIM115, closed with the process
        command = [sys.executable, "-m", "bench.campaigns.sacrifice", "modules", str(seed), str(stage)]
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
        )
        self._rest = b""
        #: the end of what it wrote to stderr, once it is closed
        self.said = ""

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
        self._said.seek(0)
        self.said = self._said.read()[-1000:].decode(errors="replace")
        self._said.close()
        return signal.Signals(-status).name if status < 0 else str(status)
