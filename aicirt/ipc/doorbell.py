"""Wakes a process when work is waiting for it: doorbells, which are semaphores, and spinning.

A wake-up across cores takes 30-60 us, so a process spins before it sleeps, and chooses where it sleeps.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import stat
import time
from collections.abc import Iterable

import posix_ipc

from aicirt.contract.errors import ProtocolError, SpaceError
from aicirt.ipc import names
from aicirt.ipc.ring import Ring
from aicirt.system.files import Descriptor
from aicirt.system.shortage import describe

#: calls that may wait, and calls that never do, which would take longer if they released Python's lock
_libc, _quick = ctypes.CDLL(None), ctypes.PyDLL(None)
#: glibc 2.30
_clockwait = getattr(_libc, "sem_clockwait", None)
#: bytes of a semaphore on 64-bit machines
_BYTES = 32


class _TimeSpec(ctypes.Structure):
    _fields_ = (("sec", ctypes.c_long), ("nsec", ctypes.c_long))


class Semaphore:
    """A POSIX semaphore in a file that several processes map. After `close`, calls have no effect."""

    __slots__ = ("_memory",)

    def __init__(self, file: Descriptor) -> None:
        """Maps the file. Raises ProtocolError if it is not that of a semaphore, and OSError."""
        found = os.fstat(file.fd)
        if not stat.S_ISREG(found.st_mode) or found.st_size < _BYTES:
            raise ProtocolError("a doorbell is not the file of a semaphore")
        #: mapped until the last call that uses it has returned
        self._memory: ctypes.Array[ctypes.c_char] | None
        self._memory = (ctypes.c_char * _BYTES).from_buffer(mmap.mmap(file.fd, _BYTES))

    def acquire(self, timeout: float) -> bool:
        """Decrements the semaphore; returns False after `timeout` seconds, or on a signal.

        Waits by the monotonic clock, where the C library can: if the time of day is set back by an hour, a
        wait until a time of day lasts an hour longer.
        """
        if (memory := self._memory) is None:
            return False
        if timeout <= 0:
            return not _quick.sem_trywait(memory)
        clock = time.CLOCK_REALTIME if _clockwait is None else time.CLOCK_MONOTONIC
        end = divmod(time.clock_gettime_ns(clock) + int(timeout * 1e9), 1_000_000_000)
        until = ctypes.byref(_TimeSpec(*end))
        if _clockwait is None:
            return not _libc.sem_timedwait(memory, until)
        return not _clockwait(memory, clock, until)

    def release(self) -> None:
        """Increments the semaphore, unless it has its highest value, 2^31 - 1."""
        if (memory := self._memory) is not None:
            _quick.sem_post(memory)

    @property
    def value(self) -> int:
        """How often the semaphore can be decremented without a wait."""
        value, memory = ctypes.c_int(), self._memory
        if memory is not None:
            _quick.sem_getvalue(memory, ctypes.byref(value))
        return value.value

    def close(self) -> None:
        """Unmaps the file."""
        self._memory = None


#: rings that one `wait` consumes at most: more would only wake the waiter once more
_MAX_RINGS = 1 << 16


class Doorbell:
    """A semaphore that wakes the process that waits for it.

    Workers open none by name, so that a guest that has broken out reaches only those of its clients.
    """

    __slots__ = ("_semaphore", "file", "name")

    def __init__(self, file: Descriptor, name: str = "") -> None:
        """Maps the semaphore. Raises ProtocolError, OSError."""
        self._semaphore = Semaphore(file)
        #: empty if another process has created the semaphore, or it has no name any more
        self.name = name
        #: for a process that opens no names; None if another process has created the semaphore
        self.file = file if name else None

    @classmethod
    def create(cls) -> Doorbell:
        """Creates a doorbell with a fresh name, accessible to this user only. Raises SpaceError."""
        name = ""
        try:
            name = names.fresh_name()
            posix_ipc.Semaphore(name, posix_ipc.O_CREX, mode=0o600, initial_value=0).close()
            return cls(names.open_semaphore(name), name)
        except (OSError, posix_ipc.Error) as error:
            if name:
                names.unlink_semaphore(name)
            raise SpaceError(
                f"cannot create a semaphore in /dev/shm (in a container, see --shm-size): {describe(error)}"
            ) from error

    @classmethod
    def open(cls, name: str) -> Doorbell:
        """Opens an existing doorbell. Raises OSError, FileNotFoundError if the name is gone."""
        return cls(names.open_semaphore(name))

    def ring(self) -> None:
        """Wakes the waiter."""
        self._semaphore.release()

    @property
    def rung(self) -> bool:
        """Whether the bell was rung since the last wait."""
        return self._semaphore.value > 0

    def wait(self, timeout: float) -> bool:
        """Waits up to `timeout` seconds (0 = do not wait); returns True if the bell was rung, however often.

        A bell has one waiter.
        """
        acquire = self._semaphore.acquire
        if not acquire(timeout):
            return False
        for _ in range(_MAX_RINGS):  # bounded: a process may ring endlessly
            if not acquire(0):
                break
        return True

    def unlink(self) -> None:
        """Removes the name; processes that have the semaphore open are not affected."""
        if self.name:
            names.unlink_semaphore(self.name)
            self.name = ""

    def close(self) -> None:
        """Closes the doorbell, and removes the name if this process created it."""
        self._semaphore.close()
        self.file = None
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
