"""Finds the processes of programs under test, and what they leave behind."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from lab.system.waiting import PATIENCE

if TYPE_CHECKING:
    from pyaici.client.runtime import Runtime

#: process id -> start time, which distinguishes it from a later process with the same id
Family = dict[int, int]


def process_start_time(pid: int) -> int | None:
    """Returns a process's start time in clock ticks since boot; None if it does not exist or has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # the command name may contain spaces and parentheses: the fields follow the last ')'
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def family(pid: int) -> Family:
    """Returns a process and all its descendants."""
    found: Family = {}
    todo = [pid]
    while todo:
        number = todo.pop()
        start = process_start_time(number)
        if start is None or number in found:
            continue
        found[number] = start
        try:
            for task in Path(f"/proc/{number}/task").glob("*/children"):
                with suppress(OSError):  # the task has ended meanwhile
                    todo += map(int, task.read_text().split())
        except OSError:  # the process has ended meanwhile
            continue
    return found


def command_line(pid: int) -> bytes:
    """Returns the command line of a process, or an empty text if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def private_daemons(members: Family) -> Family:
    """Returns the daemons that these processes own, children or not, and their descendants."""
    found: Family = {}
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes().split(b"\0")
        except OSError:  # the process has ended meanwhile
            continue
        if b"--owner-pid" in words and int(words[words.index(b"--owner-pid") + 1]) in members:
            found |= family(int(file.parent.name))
    return found


def open_files() -> int:
    """Returns the number of descriptors of this process, without garbage that earlier tests have left."""
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


def left_behind(members: Family, seconds: float = PATIENCE) -> list[str]:
    """Waits until the processes are gone; returns those that stay."""
    deadline = time.monotonic() + seconds
    while (found := _left(members)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def _left(members: Family) -> list[str]:
    return [f"process {pid}" for pid, start in members.items() if process_start_time(pid) == start]


@contextmanager
def stopped(runtime: Runtime) -> Iterator[int]:
    """Stops the only worker of a runtime; yields its process id."""
    (worker,) = (each["pid"] for each in runtime.health()["workers"])
    os.kill(worker, signal.SIGSTOP)
    try:
        yield worker
    finally:
        os.kill(worker, signal.SIGCONT)


@contextmanager
def starved(pid: int) -> Iterator[None]:
    """Pins the process to one processor, and has busy processes take nearly all of its time."""
    processor = min(os.sched_getaffinity(0))
    os.sched_setaffinity(pid, {processor})
    os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4)]
    try:
        for hog in hogs:
            os.sched_setaffinity(hog.pid, {processor})
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
