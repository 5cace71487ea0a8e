"""Which processor a process runs on, so that two that work for each other do not share one."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable

current_cpu = ctypes.PyDLL(None).sched_getcpu


class Placement:
    """Where this thread sleeps, so that it wakes up beside the one who wakes it and not behind it.

    The scheduler often wakes a thread on the processor of its waker, in a virtual machine above all, where it
    takes idle processors for busy ones. There it waits until the waker sleeps, or for the milliseconds after
    which the scheduler separates the two.
    """

    def __init__(self) -> None:
        #: what was allowed before, and what is allowed now; None = nothing was changed
        self._narrowed: tuple[set[int], set[int]] | None = None

    def leave(self, cpus: Iterable[int]) -> None:
        """Until `restore`, not on one of these processors, if any other is allowed."""
        self.restore()
        allowed = os.sched_getaffinity(0)
        others = allowed.difference(cpus)
        if others and others != allowed:
            os.sched_setaffinity(0, others)
            self._narrowed = allowed, others

    def restore(self) -> None:
        """What `leave` forbade is allowed again, unless somebody else has decided meanwhile."""
        if self._narrowed is None:
            return
        allowed, narrowed = self._narrowed
        self._narrowed = None
        if os.sched_getaffinity(0) == narrowed:
            os.sched_setaffinity(0, allowed)
