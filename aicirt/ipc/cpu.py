"""Places threads on processors, and spins before sleeping: a wake-up across cores takes 30-60 us."""

from __future__ import annotations

import ctypes
import os
import platform
import time
from collections.abc import Iterable

from aicirt.ipc.ring import Ring

current_cpu = ctypes.PyDLL(None).sched_getcpu
#: Niceness of workers. If processors are scarce, the engine's step has priority over guests that compute for
#: long. This does not delay a step, since the engine sleeps while it waits for a worker.
WORKER_NICE = 5
#: Niceness of the builder and of compilers: a client waits only once for their results.
BACKGROUND_NICE = 10
#: number of the system call sched_setattr, for which older C libraries have no function
_SCHED_SETATTR = {"x86_64": 314, "AMD64": 314, "aarch64": 274, "arm64": 274}


class CpuPlacement:
    """Restricts the processors on which this thread sleeps, so that it does not wake up on its waker's.

    The scheduler often wakes a thread on the processor of its waker, mostly in virtual machines, where it
    mistakes idle processors for busy ones. The thread then waits until the waker sleeps, or until the
    scheduler separates the two after some milliseconds.
    """

    def __init__(self) -> None:
        #: the processors allowed before, and those allowed now; None = unchanged
        self._narrowed: tuple[set[int], set[int]] | None = None

    def leave(self, cpus: Iterable[int]) -> None:
        """Excludes these processors until `restore`, if any other is allowed."""
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
    """Requests short time slices, which start sooner, for this thread and those that it starts from now on.

    From Linux 6.12 on, a woken thread with a short slice need not wait for the end of a longer slice (a few
    milliseconds). Older kernels accept the request and ignore it. Returns False if the request failed.
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


#: how long a client spins for the answer to a message that a worker handles at once: about the time of
#: sleeping and waking twice
ANSWER_SECONDS = 200e-6
#: the same for post_process and pre_process of a step. A thread that sleeps on an idle processor is often
#: woken on the worker's processor, and then waits until the worker has finished mid_process
CRITICAL_SECONDS = 2e-3
#: how long a worker spins for the next step after its client has received the results of this one: sampling
#: takes about this long, and a step takes 5 to 50 ms
SAMPLING_SECONDS = 1e-3


def _may_spin() -> bool:
    """Returns whether `spin` is useful and safe here.

    With one core the peer cannot write while this thread spins. Without the doorbell between write and read,
    only processors that keep the order of stores guarantee that a visible message is complete.
    """
    return len(os.sched_getaffinity(0)) > 1 and platform.machine() in ("x86_64", "AMD64")


_MAY_SPIN = _may_spin()


def spin(rings: Iterable[Ring], seconds: float) -> bool:
    """Spins until one of these rings has something to read, which returns True, or for `seconds`.

    Returns False at once where spinning is not possible.
    """
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
