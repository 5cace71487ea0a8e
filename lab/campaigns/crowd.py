"""Processes that test damaged modules and are replaced when they die."""

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

from lab import ROOT
from lab.campaigns.campaign import Campaign
from lab.campaigns.sacrifice import COMPILING, DONE, STAGE

_CHUNK = 100
#: cases of a process before it is replaced
_LIFE = 5000
#: the longest time without a result: compiling has a limit of 60 s of CPU time
_SILENCE_SECONDS = 150.0


class Crowd:
    """A process for each spare core, each controlled by a thread."""

    def __init__(self, campaign: Campaign) -> None:
        self._campaign = campaign
        #: number of processes; one core is left for the daemon
        self.width = max(1, min(8, len(os.sched_getaffinity(0)) - 1))
        self._cases = campaign.cases()
        self._lock = threading.Lock()
        self._results: queue.Queue[tuple[int, dict[str, Any]] | None] = queue.Queue(2000)
        #: seconds of each stage
        self.times: dict[str, list[float]] = {"check": [], "compile": []}

    def results(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yields the number and the result of each case, as they arrive."""
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
        """Runs one process after the other until there are no more cases."""
        try:
            while chunks := self._chunks():
                self._live(chunks)
        finally:
            self._results.put(None)

    def _chunks(self) -> list[tuple[int, int]]:
        """Returns the cases for one process, as ranges."""
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
                    if first < last:  # the process died, or was silent, in this case
                        first = self._dead(child, first)
                        child = None
            if child is not None:
                child.close()

    def _dead(self, child: Child, expected: int) -> int:
        """Records the end of a process; returns the number of the next case."""
        status = child.close()
        number, at = STAGE.unpack(child.stage.read_bytes())
        if at == DONE or number != expected:
            flaw = f"a process ended with status {status} between two cases: {child.stderr}"
            self._results.put((expected, {"end": "died elsewhere", "flaw": flaw}))
            return expected + 1
        result: dict[str, Any] = {"end": f"died {status}"}
        # a process may die while it compiles: in the runtime this ends the upload with a typed error
        if at != COMPILING or child.silent:
            silent = " after a long silence" * child.silent
            result["flaw"] = f"a process ended with status {status} in stage {at}{silent}: {child.stderr}"
        self._results.put((number, result))
        return int(number) + 1


class Child:
    """A process that runs `lab.campaigns.sacrifice`."""

    def __init__(self, seed: int, stage: Path) -> None:
        self.stage = stage
        self.silent = False
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115, closed with the process
        command = [sys.executable, "-m", "lab.campaigns.sacrifice", "modules", str(seed), str(stage)]
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
        )
        self._rest = b""
        #: the end of its error output, once it is closed
        self.stderr = ""

    def ask(self, first: int, last: int) -> Iterator[dict[str, Any]]:
        """Yields the results of these cases, or of the first of them if the process dies."""
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
        """Ends the process; returns its exit status or signal."""
        assert self._process.stdin is not None and self._process.stdout is not None
        if self.silent:
            self._process.kill()
        self._process.stdin.close()
        status = self._process.wait()
        self._process.stdout.close()
        self._stderr.seek(0)
        self.stderr = self._stderr.read()[-1000:].decode(errors="replace")
        self._stderr.close()
        return signal.Signals(-status).name if status < 0 else str(status)
