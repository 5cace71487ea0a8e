"""How busy a worker is, for whoever places new sequences."""

from __future__ import annotations

import math
import time

#: what happened so long ago counts 1/e of what happens now
AVERAGE_SECONDS = 1.0
#: between two looks; a shorter time says little
_LEAST_SECONDS = 0.01


class Meter:
    """Adds up what is done for sequences: their steps and starts, and slices of long calls.

    Waiting and looking for a step that is expected is no work, nor is what the supervisor asks for.
    """

    __slots__ = ("_busy", "_cpu_ns", "_looked_at", "_seen_ns", "_since_cpu_ns", "_since_ns", "_work_ns")

    def __init__(self) -> None:
        self._since_ns = self._since_cpu_ns = 0
        self._work_ns = self._seen_ns = self._cpu_ns = 0
        self._looked_at = time.monotonic_ns()
        self._busy = 0.0

    def begin(self) -> None:
        """Something is done for a sequence from now on; not within another one."""
        self._since_ns = time.monotonic_ns()
        self._since_cpu_ns = time.thread_time_ns()

    def end(self) -> None:
        """It is over."""
        self._cpu_ns += time.thread_time_ns() - self._since_cpu_ns
        self._work_ns += time.monotonic_ns() - self._since_ns

    @property
    def cpu_seconds(self) -> float:
        """CPU time of all work so far."""
        return self._cpu_ns / 1e9

    def busy(self) -> float:
        """Share of the time, 0 to 1, in which there was work: an average of the last second or so.

        Time on the clock: a worker that has to share its processor has less to give.
        """
        now = time.monotonic_ns()
        seconds = (now - self._looked_at) / 1e9
        if seconds >= _LEAST_SECONDS:
            share = min(1.0, (self._work_ns - self._seen_ns) / 1e9 / seconds)
            self._busy += (1 - math.exp(-seconds / AVERAGE_SECONDS)) * (share - self._busy)
            self._looked_at, self._seen_ns = now, self._work_ns
        return self._busy
