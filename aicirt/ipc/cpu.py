"""Places threads on processors, and lets a thread wait awake: waking up across cores takes 30 to 60 us."""

from __future__ import annotations

import ctypes
import os
import platform
import time
from collections.abc import Iterable

from aicirt.ipc.ring import Ring

current_cpu = ctypes.PyDLL(None).sched_getcpu
#: Niceness of workers: where there are fewer processors than work, the engine's step comes before guests that
#: compute for long. Nothing waits where it counts, for the engine sleeps while it waits for a worker.
WORKER_NICE = 5
#: Niceness of the builder and of compilers, which do what somebody waits for once.
BACKGROUND_NICE = 10
#: number of the system call sched_setattr, which the C library has only of late
_SCHED_SETATTR = {"x86_64": 314, "AMD64": 314, "aarch64": 274, "arm64": 274}


class Placement:
    """Chooses the processor on which this thread sleeps, so that it wakes up beside its waker, not behind it.

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
        """Allows the processors that `leave` has excluded, unless the affinity has been changed meanwhile."""
        if self._narrowed is None:
            return
        allowed, narrowed = self._narrowed
        self._narrowed = None
        if os.sched_getaffinity(0) == narrowed:
            os.sched_setaffinity(0, allowed)


class _Attributes(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_uint32),
        ("policy", ctypes.c_uint32),
        ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32),
        ("runtime", ctypes.c_uint64),
        ("deadline", ctypes.c_uint64),
        ("period", ctypes.c_uint64),
    )


def take_short_turns(seconds: float) -> bool:
    """This thread, and those that it makes from now on, ask for short turns, which come sooner.

    From Linux 6.12 on somebody who was woken and wants a short turn need not wait for the end of a longer
    one (a few milliseconds). False where the kernel has no such thing; older ones accept it and do nothing.
    """
    number = _SCHED_SETATTR.get(platform.machine())
    if number is None:
        return False
    wish = _Attributes(
        size=ctypes.sizeof(_Attributes),
        nice=os.getpriority(os.PRIO_PROCESS, 0),
        runtime=int(seconds * 1e9),
    )
    return not ctypes.CDLL(None, use_errno=True).syscall(number, 0, ctypes.byref(wish), 0)


def give_way(nice: int) -> None:
    """Gives this process, and threads that it starts from now on, at least this niceness."""
    os.setpriority(os.PRIO_PROCESS, 0, max(os.getpriority(os.PRIO_PROCESS, 0), nice))


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
