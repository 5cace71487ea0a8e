"""Looking for a message for a moment before sleeping: waking up across cores takes 30 to 60 us."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterable

from aicirt.ipc.ring import Ring

#: how long a waiter looks that expects a message right now: about what sleeping and waking would cost twice
SPIN_SECONDS = 100e-6
#: how long a worker looks for the next step after its client has heard the results of this one: sampling
#: takes about this long, and it is a small part of a step's 5 to 50 ms
SAMPLING_SECONDS = 1e-3


def _may_spin() -> bool:
    """With one core the peer cannot write meanwhile. Without the doorbell between write and read,
    only processors that keep the order of stores show a message no sooner than it is complete."""
    return len(os.sched_getaffinity(0)) > 1 and platform.machine() in ("x86_64", "AMD64")


_MAY_SPIN = _may_spin()


def spin(rings: Iterable[Ring], seconds: float = SPIN_SECONDS) -> bool:
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
