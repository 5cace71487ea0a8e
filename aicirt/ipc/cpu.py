"""Which processor a process runs on, so that two that work for each other do not share one."""

from __future__ import annotations

import ctypes
import os

current_cpu = ctypes.PyDLL(None).sched_getcpu


def step_aside(cpu: int) -> None:
    """Moves this thread to another processor than `cpu`, if it runs there and may run elsewhere.

    A process that is woken often starts on the processor of the one that woke it, or comes to share it when
    that one wakes up later; the scheduler separates them after milliseconds.
    """
    if current_cpu() != cpu:
        return
    allowed = os.sched_getaffinity(0)
    if len(allowed) > 1:
        os.sched_setaffinity(0, allowed - {cpu})
        os.sched_setaffinity(0, allowed)
