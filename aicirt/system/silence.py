"""Measures how long another process has been silent, without the time for which it lacked a processor."""

from __future__ import annotations

import os
import time
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")


class Silence:
    """The time in which a process could have answered.

    While the process is runnable, only the CPU time that it gets counts. On a machine that is too busy to run
    it, silence is not its fault, and a replacement would not answer sooner.
    """

    def __init__(self, pid: int) -> None:
        """Begins to measure."""
        self._pid = pid
        self._before = time.monotonic()
        _, self._used = progress(pid)
        self._seconds = 0.0

    def seconds(self) -> float:
        """Returns the seconds so far. Call it often: the process counts as runnable if it is at the call."""
        now, (runnable, used) = time.monotonic(), progress(self._pid)
        passed = now - self._before
        self._seconds += min(used - self._used, passed) if runnable else passed
        self._before, self._used = now, used
        return self._seconds


def progress(pid: int) -> tuple[bool, float]:
    """Returns whether the main thread of a process runs or waits for a processor, and the seconds of CPU time
    that the process has used."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False, 0.0
    return fields[0] == "R", (int(fields[11]) + int(fields[12])) / _TICK
