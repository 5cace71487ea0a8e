"""The processes of a campaign: a daemon that can be restarted, and clients."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lab import ROOT
from lab.campaigns.client import Task
from lab.system.processes import command_line, process_start_time
from pyaici.client.control import Control
from pyaici.toolchain import build_controller

#: starting takes a second or two of CPU time, for which it may have to wait
READY_SECONDS = 90.0


def build_ledger(folder: Path) -> Path:
    """Compiles the guest of `lab.campaigns.load`; returns its path."""
    return build_controller(ROOT / "lab" / "guests" / "ledger.c", folder / "ledger.wasm").path


class DaemonProcess:
    """An aicirt that can be restarted on the same socket. Use it as a context manager."""

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
        """The supervisor's pid."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Starts the daemon and waits until clients can connect. Raises RuntimeError if it does not start."""
        read_fd, write_fd = os.pipe()
        with self.log.open("ab") as log, open(read_fd, "rb") as ready:
            self._process = subprocess.Popen(
                [*self._command, "--ready-fd", str(write_fd)], cwd=ROOT, stderr=log, pass_fds=[write_fd]
            )
            os.close(write_fd)
            if ready.read() != b"ready\n":
                raise RuntimeError(f"the daemon did not start: {self.log.read_text()[-2000:]}")

    def stop(self) -> None:
        """Stops the daemon with SIGTERM."""
        assert self._process is not None
        self._process.terminate()
        self.wait()

    def wait(self) -> int:
        """Waits until the daemon has ended; returns its exit status."""
        assert self._process is not None
        return self._process.wait(READY_SECONDS)

    def processes(self) -> dict[str, int]:
        """Returns the pids by name: supervisor, builder, worker0 and so on. Raises RuntimeFailure."""
        health = self._health()
        found = {"supervisor": self.pid, "builder": health["builder"]["pid"]}
        return found | {f"worker{worker['index']}": worker["pid"] for worker in health["workers"]}

    def client_pids(self) -> list[int]:
        """Returns the pids of the connected clients."""
        return [client["pid"] for client in self._health()["clients"]]

    def _health(self) -> dict[str, Any]:
        control = Control(self.socket)
        try:
            return dict(control.call("health"))
        finally:
            control.close()


class ClientProcess:
    """A client in a separate process. Collects its events."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.done: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.losses: list[dict[str, Any]] = []
        self.refused: list[dict[str, Any]] = []
        self.connections = 0
        #: its last message
        self.stopped: dict[str, Any] | None = None
        self._process = subprocess.Popen(
            [sys.executable, "-m", "lab.campaigns.client", json.dumps(asdict(task))],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The client's pid."""
        return self._process.pid

    def status(self) -> int | None:
        """Returns the exit status, or None while the client runs."""
        return self._process.poll()

    def await_answers(self, more: int, seconds: float = READY_SECONDS) -> bool:
        """Waits for this many more correct answers; returns whether they came in time."""
        goal, deadline = self.done["answers"] + more, time.monotonic() + seconds
        while self.done["answers"] < goal:
            if time.monotonic() > deadline or self.status() is not None:
                return False
            time.sleep(0.01)
        return True

    def stop(self) -> int:
        """Stops the client; returns its exit status."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        return self.wait()

    def wait(self) -> int:
        """Waits until the client has ended and its output has been read; returns its exit status."""
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
                message = json.loads(line)
            except ValueError:  # it was killed while writing
                continue
            event = message.pop("event")
            if event == "did":
                self.done.update(message["done"])
                self.wrong += message["wrong"]
                self.losses += message["losses"]
            elif event == "refused":
                self.refused.append(message)
            elif event == "connected":
                self.connections += 1
            elif event == "stopped":
                self.stopped = message


@dataclass(frozen=True)
class Size:
    """Memory and descriptors of a process."""

    rss_kib: int
    #: -1 if they cannot be read
    descriptors: int


def size_of(pid: int) -> Size | None:
    """Returns the size of a process, or None if it is gone."""
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
    """Returns the pids of a process's children, zombies included."""
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


def fork_servers(daemon: int) -> list[int]:
    """Returns the pids of the live processes that a daemon's workers are forked from; there may be none."""
    return [pid for pid in children(daemon) if b"aicirt.fork_server" in command_line(pid).split(b"\0")]


def state_of(pid: int) -> str:
    """Returns the state of a process as in /proc: R, S, T, Z, ...; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def ended(pid: int, start: int | None, seconds: float) -> bool:
    """Waits for the end of the process with this start time; returns whether it came in time."""
    deadline = time.monotonic() + seconds
    while start is not None and process_start_time(pid) == start:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True
