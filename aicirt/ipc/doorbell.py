"""Wakes a process when work is waiting for it: doorbells, which are named semaphores, and spinning.

A wake-up across cores takes 30-60 us, so a process spins before it sleeps, and chooses where it sleeps.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import time
from collections.abc import Iterable

import posix_ipc

from aicirt.contract.errors import SpaceError
from aicirt.ipc import names
from aicirt.ipc.ring import Ring
from aicirt.system.shortage import describe

_libc = ctypes.CDLL(None, use_errno=True)
_libc.sem_open.restype = ctypes.c_void_p
_libc.sem_open.argtypes = [ctypes.c_char_p, ctypes.c_int]
_libc.sem_close.argtypes = [ctypes.c_void_p]


class _TimeSpec(ctypes.Structure):
    _fields_ = (("sec", ctypes.c_long), ("nsec", ctypes.c_long))


#: glibc 2.30
_clockwait = getattr(_libc, "sem_clockwait", None)
if _clockwait is not None:
    _clockwait.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(_TimeSpec)]


class Semaphore(posix_ipc.Semaphore):  # type: ignore[misc]  # it has no types
    """A `posix_ipc.Semaphore` whose timeouts use the monotonic clock, where the C library supports that.

    `posix_ipc.Semaphore.acquire` waits until a time of day: if the clock is set back by an hour, it waits
    an hour longer.
    """

    def __init__(self, name: str, flags: int = 0, **how: int) -> None:
        """Opens the semaphore as posix_ipc.Semaphore does.

        Raises posix_ipc.ExistentialError also if the name is removed meanwhile.
        """
        super().__init__(name, flags, **how)
        # the same semaphore: a process maps each semaphore only once
        self._address: int | None = _libc.sem_open(name.encode(), 0)
        if self._address is None:
            problem = os.strerror(ctypes.get_errno())
            self.close()
            raise posix_ipc.ExistentialError(f"semaphore {name}: {problem}")

    def acquire(self, timeout: float) -> None:
        """Decrements the semaphore. Raises posix_ipc.BusyError after `timeout` seconds, or on a signal."""
        if timeout <= 0 or _clockwait is None:
            super().acquire(timeout)
            return
        until = _TimeSpec(*divmod(time.monotonic_ns() + int(timeout * 1e9), 1_000_000_000))
        if _clockwait(self._address, time.CLOCK_MONOTONIC, until):
            raise posix_ipc.BusyError("not rung")

    def close(self) -> None:
        """Closes the semaphore in this process."""
        super().close()
        if self._address is not None:
            _libc.sem_close(self._address)
            self._address = None


#: rings that one `wait` consumes at most: more would only wake the waiter once more
_MAX_RINGS = 1 << 16


class Doorbell:
    """A named POSIX semaphore that wakes the process that waits for it."""

    __slots__ = ("_owner", "_semaphore", "name")

    def __init__(self, semaphore: Semaphore, name: str, owner: bool) -> None:
        self._semaphore = semaphore
        self._owner = owner
        self.name = name

    @classmethod
    def create(cls) -> Doorbell:
        """Creates a doorbell with a fresh name, accessible to this user only. Raises SpaceError."""
        name = ""
        try:
            name = names.fresh_name()
            semaphore = Semaphore(name, posix_ipc.O_CREX, mode=0o600, initial_value=0)
        except (OSError, posix_ipc.Error) as error:
            if name:
                names.unlink_semaphore(name)  # the second of two openings may have failed
            raise SpaceError(
                f"cannot create a semaphore in /dev/shm (in a container, see --shm-size): {describe(error)}"
            ) from error
        return cls(semaphore, name, owner=True)

    @classmethod
    def open(cls, name: str) -> Doorbell:
        """Opens an existing doorbell. Raises posix_ipc.ExistentialError if the name is gone."""
        return cls(Semaphore(name), name, owner=False)

    def ring(self) -> None:
        """Wakes the waiter."""
        with contextlib.suppress(OSError, ValueError, posix_ipc.Error):  # full after 2^31 rings
            self._semaphore.release()

    @property
    def rung(self) -> bool:
        """Whether the bell was rung since the last wait."""
        return bool(self._semaphore.value)

    def wait(self, timeout: float) -> bool:
        """Waits up to `timeout` seconds (0 = do not wait); returns True if the bell was rung, however often.

        A bell has one waiter.
        """
        semaphore = self._semaphore
        try:
            semaphore.acquire(timeout)
        except (posix_ipc.BusyError, posix_ipc.SignalError):
            return False
        for _ in range(_MAX_RINGS):  # bounded: a process may ring endlessly
            if not semaphore.value:  # costs nothing, whereas a failed attempt would raise
                break
            semaphore.acquire(0)
        return True

    def unlink(self) -> None:
        """Removes the name; processes that have the semaphore open are not affected."""
        names.unlink_semaphore(self.name)

    def close(self) -> None:
        """Closes the doorbell, and removes the name if this process created it."""
        self._semaphore.close()
        if self._owner:
            self.unlink()


current_cpu = ctypes.PyDLL(None).sched_getcpu


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
