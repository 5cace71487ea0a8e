"""Measures how long another process has been silent, without the time for which it lacked a processor."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from aicirt.system.pace import pace

_TICK = os.sysconf("SC_CLK_TCK")
#: how often a caller that waits should ask for the silence, in seconds
LOOK_SECONDS = 0.1
#: how long a check in another process may be silent
CHECK_SECONDS = 60.0
#: the most that counts between two questions: a caller that was itself kept from running cannot tell
_MAX_BETWEEN = 5 * LOOK_SECONDS


class Progress(NamedTuple):
    """The work of a process so far, and whether it goes on."""

    #: whether a thread runs, waits for a processor, or waits for a disk
    runnable: bool
    #: seconds of CPU time
    used: float
    #: seconds for which threads have waited for a processor, until each last got one
    waited: float


#: stands for the progress of a process that has not been looked at
_NONE = Progress(False, 0.0, 0.0)


class Silence:
    """The time in which a process could have answered.

    While one of its threads is runnable or waits for a disk, only the CPU time that the process gets counts.
    On a machine that is too busy or too slow to run it, silence is not its fault, and a replacement would not
    answer sooner.
    """

    def __init__(self, pid: int, *, family: bool = False) -> None:
        """`family`: the descendants of the process work for it, and count as part of it."""
        self._pid, self._family = pid, family
        self._before, self._last = 0.0, _NONE
        self._seconds = 0.0

    def seconds(self) -> float:
        """Returns the seconds since the first call. Call it every `LOOK_SECONDS`: pauses hardly count."""
        now, new = time.monotonic(), progress(self._pid, family=self._family)
        if self._last is _NONE:
            self._before, self._last = now, new
        old, passed = self._last, min(now - self._before, _MAX_BETWEEN)
        used = min(max(0.0, new.used - old.used), passed)
        idle = 0.0 if new.runnable else passed - max(0.0, new.waited - old.waited)
        self._seconds += max(used, idle)
        self._before, self._last = now, new
        return self._seconds

    def longer_than(self, seconds: float) -> bool:
        """Returns whether the process was silent for so long, in seconds of the reference machine."""
        silent = self.seconds()
        return silent > seconds and silent > seconds * pace()  # the pace is measured when it is needed


def progress(pid: int, *, family: bool = False) -> Progress:
    """Returns the progress of a process, or of the process and all its descendants."""
    runnable, used, waited = False, 0.0, 0.0
    todo = [Path("/proc", str(pid))]
    while todo:
        process = todo.pop()
        try:
            numbers = _fields(process)[11 : 15 if family else 13]
            tasks = [*(process / "task").iterdir()]
        except OSError:  # the process has ended meanwhile
            continue
        used += sum(map(int, numbers)) / _TICK
        for task in tasks:
            try:
                runnable = runnable or _fields(task)[0] in "RD"
                waited += _waited(task)
                if family:
                    todo += [Path("/proc", child) for child in (task / "children").read_text().split()]
            except OSError:  # the thread has ended, or the kernel does not list children
                continue
    return Progress(runnable, used, waited)


def _fields(folder: Path) -> list[str]:
    """Returns the fields of `stat` after the name, which may contain anything: the state is the first."""
    return (folder / "stat").read_text().rpartition(")")[2].split()


def _waited(task: Path) -> float:
    try:
        return int((task / "schedstat").read_text().split()[1]) / 1e9
    except OSError:  # the kernel does not count it
        return 0.0


def finish(
    command: Sequence[str], seconds: float = CHECK_SECONDS, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a command and returns its outputs as text; kills it when it was silent for too long.

    Raises subprocess.TimeoutExpired then, and OSError if the command cannot be started.
    """
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, errors="replace", env=env) as process:
        silence = Silence(process.pid, family=True)
        try:
            while True:
                try:
                    output, errors = process.communicate(timeout=LOOK_SECONDS)
                except subprocess.TimeoutExpired:
                    if silence.longer_than(seconds):
                        raise subprocess.TimeoutExpired(command, seconds) from None
                else:
                    return subprocess.CompletedProcess(command, process.returncode, output, errors)
        except BaseException:
            process.kill()
            raise
