"""The processes of a campaign as it sees them: a daemon that can be started again, and clients."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aicirt.ipc.names import process_start_time
from bench.campaigns.client import Task
from bench.report import ROOT
from pyaici.build import build_controller
from pyaici.client.control import Control

#: starting takes a second or two of a processor, which others may have
READY_SECONDS = 90.0


def build_ledger(folder: Path) -> Path:
    """The guest of `bench.campaigns.load`, compiled."""
    return build_controller(ROOT / "bench" / "guests" / "ledger.c", folder / "ledger.wasm").path


class DaemonProcess:
    """An aicirt on a socket where one can be started again; use as a context manager."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.socket = folder / "aicirt.sock"
        self.log = folder / "aicirt.log"
        command = [sys.executable, "-m", "aicirt", "--log-level", "warning", "--socket", str(self.socket)]
        self._command = [*command, "--store", str(folder / "store"), *options]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> DaemonProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Of the supervisor."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Returns when clients can connect. Raises RuntimeError if it does not start."""
        read_fd, write_fd = os.pipe()
        with self.log.open("ab") as log, open(read_fd, "rb") as ready:
            self._process = subprocess.Popen(
                [*self._command, "--ready-fd", str(write_fd)], cwd=ROOT, stderr=log, pass_fds=[write_fd]
            )
            os.close(write_fd)
            if ready.read() != b"ready\n":
                raise RuntimeError(f"the daemon did not start: {self.log.read_text()[-2000:]}")

    def stop(self) -> None:
        """By SIGTERM."""
        assert self._process is not None
        self._process.terminate()
        self.wait()

    def wait(self) -> int:
        """Until it has ended; its exit status."""
        assert self._process is not None
        return self._process.wait(READY_SECONDS)

    def processes(self) -> dict[str, int]:
        """By name: supervisor, builder, worker0 ... Raises RuntimeFailure if it does not answer."""
        health = self._health()
        found = {"supervisor": self.pid, "builder": health["builder"]["pid"]}
        return found | {f"worker{worker['index']}": worker["pid"] for worker in health["workers"]}

    def client_pids(self) -> list[int]:
        """Processes that are connected."""
        return [client["pid"] for client in self._health()["clients"]]

    def _health(self) -> dict[str, Any]:
        control = Control(self.socket)
        try:
            return dict(control.call("health"))
        finally:
            control.close()


class ClientProcess:
    """A client at work; counts what it says."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.done: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.losses: list[dict[str, Any]] = []
        self.refused: list[dict[str, Any]] = []
        self.connections = 0
        #: what it said last
        self.stopped: dict[str, Any] | None = None
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.campaigns.client", json.dumps(asdict(task))],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def status(self) -> int | None:
        """Exit status, or None while it runs."""
        return self._process.poll()

    def await_answers(self, more: int, seconds: float = READY_SECONDS) -> bool:
        """Whether so many more right answers come in time."""
        goal, deadline = self.done["answers"] + more, time.monotonic() + seconds
        while self.done["answers"] < goal:
            if time.monotonic() > deadline or self.status() is not None:
                return False
            time.sleep(0.01)
        return True

    def stop(self) -> int:
        """Tells it to stop; its exit status."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        return self.wait()

    def wait(self) -> int:
        """Until it has ended and everything it said has been read; its exit status."""
        status = self._process.wait(READY_SECONDS)
        self._reader.join(READY_SECONDS)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        return status

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                said = json.loads(line)
            except ValueError:  # it was killed while it wrote
                continue
            event = said.pop("event")
            if event == "did":
                self.done.update(said["done"])
                self.wrong += said["wrong"]
                self.losses += said["losses"]
            elif event == "refused":
                self.refused.append(said)
            elif event == "connected":
                self.connections += 1
            elif event == "stopped":
                self.stopped = said


@dataclass(frozen=True)
class Size:
    """Of a process."""

    rss_kib: int
    #: -1 where we may not look
    descriptors: int


def size_of(pid: int) -> Size | None:
    """None if it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    rss = [int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon")]
    try:
        descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    except OSError:
        descriptors = -1
    return Size(rss[0], descriptors) if rss else None


def children(pid: int) -> list[int]:
    """Processes that it has started and that live, or are zombies of it."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid:
                found.append(int(entry.name))
    return sorted(found)


def state_of(pid: int) -> str:
    """R, S, T, Z ... as in /proc; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def ended(pid: int, start: int | None, seconds: float) -> bool:
    """Whether that very process ends in time."""
    deadline = time.monotonic() + seconds
    while start is not None and process_start_time(pid) == start:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def names_of(pids: Iterable[int | str]) -> list[str]:
    """Shared memory that is still named, of these processes: numbers, or ``number-start time``."""
    marks = [f"-{pid}-" for pid in pids]
    return [e.name for e in Path("/dev/shm").iterdir() if any(mark in e.name for mark in marks)]
