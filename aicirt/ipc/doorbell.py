"""Wakes a process when work is waiting for it: doorbells, and spinning.

A wake-up across cores takes 30-60 us, so a process spins before it sleeps, and chooses where it sleeps.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import time
from collections.abc import Iterable

from aicirt.contract.errors import SpaceError
from aicirt.ipc.ring import Ring
from aicirt.system.files import Descriptor, create_shared, map_shared
from aicirt.system.shortage import describe

#: calls that may wait, and calls that never do, which would take longer if they released Python's lock
_libc, _quick = ctypes.CDLL(None), ctypes.PyDLL(None)
#: whether other processors see stores in the order in which a processor makes them
_ORDERED = platform.machine() in ("x86_64", "AMD64")
#: number of the system call futex, also on 64-bit ARM, and its operations between processes
_FUTEX, _WAIT, _WAKE = 202 if _ORDERED else 98, 0, 1
for _library in (_libc, _quick):
    _library.syscall.argtypes = [
        ctypes.c_long,
        ctypes.c_void_p,
        ctypes.c_long,
        ctypes.c_long,
        ctypes.c_void_p,
    ]
_unlock, _try_lock = _quick.pthread_spin_unlock, _quick.pthread_spin_trylock
#: guards nothing
_lock = ctypes.byref(ctypes.c_int())


def _fence() -> None:
    """Makes earlier stores visible before later loads: no processor moves a lock before the unlock ahead."""
    _unlock(_lock)
    _try_lock(_lock)


class _TimeSpec(ctypes.Structure):
    _fields_ = (("sec", ctypes.c_long), ("nsec", ctypes.c_long))


#: words of a doorbell: whether it was rung, and whether its waiter sleeps
_RUNG, _ASLEEP = 0, 1
_Words = ctypes.c_uint32 * 2


class Doorbell:
    """Two words of shared memory, by which processes wake the one that waits. After `close` it does nothing.

    A peer may write anything there. All that it can cause are a wait that ends early or takes its whole time,
    and a needless system call: operations and times of the kernel's calls are never read from the words, as
    the C library reads them from a semaphore.
    """

    __slots__ = ("_words", "file")

    def __init__(self, memory: mmap.mmap, at: int = 0, file: Descriptor | None = None) -> None:
        """`memory`: mapped until the last call that uses it has returned. `at`: offset, a multiple of 4."""
        self._words: ctypes.Array[ctypes.c_uint32] | None = _Words.from_buffer(memory, at)
        #: the memory file of a doorbell that has one of its own, for other processes
        self.file = file

    @classmethod
    def create(cls) -> Doorbell:
        """Creates a doorbell in a memory file of its own. Raises SpaceError."""
        try:
            file = create_shared("aici-doorbell", mmap.PAGESIZE, mmap.PAGESIZE)
            return cls(mmap.mmap(file.fd, mmap.PAGESIZE), file=file)
        except OSError as error:
            raise SpaceError(f"cannot create a doorbell in shared memory: {describe(error)}") from error

    @classmethod
    def of_file(cls, fd: int) -> Doorbell:
        """Maps a doorbell of another process. Raises ProtocolError if it is none, and OSError."""
        return cls(map_shared(fd, mmap.PAGESIZE, "doorbell"))

    def ring(self) -> None:
        """Wakes the waiter; makes no system call if it does not sleep."""
        if (words := self._words) is None:
            return
        if not _ORDERED:
            _fence()  # first the message
        words[_RUNG] = 1
        _fence()
        if words[_ASLEEP]:
            self._wake(words)

    @property
    def rung(self) -> bool:
        """Whether the bell was rung since the last wait."""
        words = self._words
        return words is not None and words[_RUNG] != 0

    def wait(self, timeout: float) -> bool:
        """Waits up to `timeout` seconds (0 = do not wait); returns True if the bell was rung, however often.

        Returns early on a signal. A bell has one waiter.
        """
        if (words := self._words) is None:
            return False
        if not words[_RUNG]:
            if timeout <= 0:
                return False
            words[_ASLEEP] = 1
            self._sleep(words, timeout)
            words[_ASLEEP] = 0
            if not words[_RUNG]:
                return False
        words[_RUNG] = 0
        _fence()  # then the waiter looks for messages
        return True

    @staticmethod
    def _sleep(words: ctypes.Array[ctypes.c_uint32], seconds: float) -> None:
        """Sleeps until `_wake`, unless the bell has been rung: the kernel looks once more."""
        time_spec = _TimeSpec(*divmod(int(seconds * 1e9), 1_000_000_000))
        _libc.syscall(_FUTEX, words, _WAIT, 0, ctypes.byref(time_spec))

    @staticmethod
    def _wake(words: ctypes.Array[ctypes.c_uint32]) -> None:
        _quick.syscall(_FUTEX, words, _WAKE, 1, None)

    def close(self) -> None:
        """Unmaps the doorbell."""
        self._words = self.file = None


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
    return len(os.sched_getaffinity(0)) > 1 and _ORDERED


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
