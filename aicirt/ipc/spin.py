"""Looking for a message for a moment before sleeping: waking up across cores takes 30 to 60 us."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterable

from aicirt.ipc.ring import Ring

#: how long a client looks for the answer to a message that a worker handles at once: about what sleeping
#: and waking would cost twice
ANSWER_SECONDS = 200e-6
#: the same for post_process and pre_process of a step. A thread that sleeps while its processor does is often
#: woken on the processor of the worker, and then waits until that has done with mid_process
CRITICAL_SECONDS = 2e-3
#: how long a worker looks for the next step after its client has heard the results of this one: sampling
#: takes about this long, and it is a small part of a step's 5 to 50 ms
SAMPLING_SECONDS = 1e-3


def _may_spin() -> bool:
    """With one core the peer cannot write meanwhile. Without the doorbell between write and read,
    only processors that keep the order of stores show a message no sooner than it is complete."""
    return len(os.sched_getaffinity(0)) > 1 and platform.machine() in ("x86_64", "AMD64")


_MAY_SPIN = _may_spin()


def spin(rings: Iterable[Ring], seconds: float) -> bool:
    """Looks until one of these rings has something to read, True, or for some time."""
    if not _MAY_SPIN:
        return False
    rings = tuple(rings)
    until = time.monotonic() + seconds
    while True:
        for ring in rings:
            if ring.waiting:
                return True
        if time.monotonic() >= until:
            return False
