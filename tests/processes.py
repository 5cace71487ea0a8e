"""Processes of programs under test: which they are, and what they leave behind."""

from __future__ import annotations

import time
from pathlib import Path

from aicirt.ipc.names import process_start_time

#: process id -> start time, which tells it from a later one with the same id
Family = dict[int, int]


def family(pid: int) -> Family:
    """A process and all that it has started, theirs too."""
    found: Family = {}
    todo = [pid]
    while todo:
        number = todo.pop()
        start = process_start_time(number)
        if start is None or number in found:
            continue
        found[number] = start
        for task in Path(f"/proc/{number}/task").glob("*/children"):
            try:
                todo += map(int, task.read_text().split())
            except OSError:  # it has ended meanwhile
                continue
    return found


def command_line(pid: int) -> bytes:
    """Of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def private_daemons(members: Family) -> Family:
    """Those of aicirt that end with one of these processes, children or not, and what they started."""
    found: Family = {}
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes().split(b"\0")
        except OSError:  # it has ended meanwhile
            continue
        if b"--owner-pid" in words and int(words[words.index(b"--owner-pid") + 1]) in members:
            found |= family(int(file.parent.name))
    return found


def left_behind(members: Family, seconds: float = 20) -> list[str]:
    """What is there of them after a while: processes, and names in /dev/shm."""
    deadline = time.monotonic() + seconds
    while (found := _left(members)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def _left(members: Family) -> list[str]:
    marks = [f"-{pid}-{start}-" for pid, start in members.items()]
    names = [entry.name for entry in Path("/dev/shm").iterdir()]
    alive = [
        pid for pid, start in members.items() if process_start_time(pid) == start and not _is_zombie(pid)
    ]
    return [f"process {pid}" for pid in alive] + [n for n in names if any(mark in n for mark in marks)]


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
