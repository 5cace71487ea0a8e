"""Measures how much slower this machine is than the one that limits of CPU time are made for."""

from __future__ import annotations

import time
from functools import lru_cache

#: the yardstick of the reference machine, s of CPU time
GOOD_SECONDS = 0.30
#: additions in one run for `pace`, and runs of which the fastest counts: the others may have been disturbed.
#: Together 15 ms at pace 1
_ADDITIONS, _RUNS = 50_000, 5
#: the most that is believed: a limit on a hostile controller must stay a limit
MAX_PACE = 20.0


def yardstick(additions: int = 5_000_000) -> float:
    """Returns the CPU seconds of a Python loop of five million additions, or an estimate from fewer."""
    # at the level of a module, where variables are slower than in a function
    loop = compile(f"total = 0\nfor _ in range({additions}): total += 1", "yardstick", "exec")
    start = time.thread_time()  # other threads of the process do not count
    exec(loop, {})
    return (time.thread_time() - start) * 5_000_000 / additions


@lru_cache(1)
def pace() -> float:
    """Returns how many times longer fixed work takes than on the reference machine: 1 to `MAX_PACE`.

    Measured once in a process, in CPU time. A faster machine has 1, so that limits never shrink.
    """
    return paced(min(yardstick(_ADDITIONS) for _ in range(_RUNS)))


def paced(seconds: float) -> float:
    """Returns the pace of a machine whose yardstick is `seconds`."""
    return round(min(max(1.0, seconds / GOOD_SECONDS), MAX_PACE), 2)
