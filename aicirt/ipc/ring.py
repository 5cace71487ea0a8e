"""Messages between two processes through shared memory: rings, and doorbells that wake the reader.

A ring has one writer and one reader. A frame in it is a word (the length, with the top bit set if the message
continues in the next frame) followed by the bytes, padded to a multiple of 4. Positions are 64-bit counters
that only grow, each written by one side alone. The doorbell that follows every write orders the memory
accesses. The reader copies data out before it interprets them.

A wake-up across cores takes 30-60 us, so a process spins before it sleeps, and chooses where it sleeps.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import time
from collections.abc import Iterable

from aicirt.contract.errors import ProtocolError, SpaceError
from aicirt.system.files import Descriptor, create_shared, map_shared
from aicirt.system.shortage import describe

#: bytes before the data, two cache lines: the writer's position and processor; the reader's position
HEADER_BYTES = 128
_MORE = 0x80000000
_LAST = (1 << 64) - 1
#: maximum bytes of a message in several frames: the longest prompt has 16 MiB
MAX_MESSAGE = 64 << 20


class Ring:
    """A view of a ring: each side creates its own `Ring` over the same memory."""

    __slots__ = ("_capacity", "_data", "_parts", "_positions", "max_frame")

    def __init__(self, memory: memoryview) -> None:
        """Takes writable `memory` of HEADER_BYTES plus a capacity that is a multiple of 8."""
        self._positions = memory[:HEADER_BYTES].cast("Q")
        self._data = memory[HEADER_BYTES:]
        self._capacity = len(self._data)
        #: maximum bytes in one frame; longer messages are split
        self.max_frame = self._capacity // 2 - 4
        self._parts: list[bytes] = []

    def try_write(self, payload: bytes, more: bool = False) -> bool:
        """Writes one frame of at most `max_frame` bytes; returns False if there is no room now."""
        positions, capacity = self._positions, self._capacity
        position = positions[0]
        used = position - positions[8]
        if not 0 <= used <= capacity:
            raise ProtocolError(f"ring positions are inconsistent ({used} of {capacity} bytes used)")
        length = len(payload)
        padded = 4 + (length + 3 & ~3)
        if padded > capacity - used:
            return False
        if position > _LAST - padded:  # the peer, which can write here too, has changed it
            raise ProtocolError("ring positions are out of range")
        frame = (length | _MORE if more else length).to_bytes(4, "little") + payload
        at = position % capacity
        end = at + 4 + length
        if end <= capacity:
            self._data[at:end] = frame
        else:
            self._data[at:] = frame[: capacity - at]
            self._data[: end - capacity] = frame[capacity - at :]
        positions[0] = position + padded
        return True

    def publish_cpu(self, cpu: int) -> None:
        """Publishes the processor on which the writer runs."""
        self._positions[1] = cpu + 1

    @property
    def writer_cpu(self) -> int:
        """The processor on which the writer runs, as it has published; -1 if unknown."""
        return self._positions[1] - 1

    @property
    def waiting(self) -> bool:
        """Whether there is unread data; costs less than `read`."""
        return self._positions[0] != self._positions[8]

    @property
    def in_pieces(self) -> bool:
        """Whether only part of a message has been read; the rest may be waiting for room."""
        return bool(self._parts)

    def read(self) -> bytes | None:
        """Returns the next complete message, or None. Raises ProtocolError for invalid data."""
        positions, capacity = self._positions, self._capacity
        while True:
            start = positions[8]
            available = positions[0] - start
            if available == 0:
                return None
            if not 4 <= available <= capacity:
                raise ProtocolError(f"ring positions are inconsistent ({available} bytes available)")
            # a frame begins at a multiple of 4, so this word is contiguous
            at = start % capacity
            word = int.from_bytes(self._data[at : at + 4], "little")
            length = word & ~_MORE
            padded = 4 + (length + 3 & ~3)
            if padded > available:
                raise ProtocolError(f"a frame of {length} bytes, but only {available} are available")
            payload = self._copy_out(start + 4, length)
            positions[8] = start + padded
            if word & _MORE:
                self._parts.append(payload)
                if len(self._parts) * self.max_frame > MAX_MESSAGE:
                    raise ProtocolError(f"a message has more than {MAX_MESSAGE} bytes, which is the limit")
            elif self._parts:
                whole = b"".join([*self._parts, payload])
                self._parts.clear()
                return whole
            else:
                return payload

    def frames(self, message: bytes) -> list[tuple[bytes, bool]]:
        """Splits a message into (payload, more) frames for `try_write`."""
        limit = self.max_frame
        if len(message) <= limit:
            return [(message, False)]
        cuts = range(0, len(message), limit)
        return [(message[i : i + limit], i + limit < len(message)) for i in cuts]

    def release(self) -> None:
        """Releases the memory so that its mapping can be closed."""
        self._positions.release()
        self._data.release()

    def _copy_out(self, position: int, length: int) -> bytes:
        at = position % self._capacity
        end = at + length
        if end <= self._capacity:
            return bytes(self._data[at:end])
        return bytes(self._data[at:]) + bytes(self._data[: end - self._capacity])


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

    def wait_for_ring(self, timeout: float) -> bool:
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

    def avoid_processors(self, cpus: Iterable[int]) -> None:
        """Excludes these processors until `restore`, if any other is allowed."""
        self.restore()
        allowed = os.sched_getaffinity(0)
        others = allowed.difference(cpus)
        if others and others != allowed:
            os.sched_setaffinity(0, others)
            self._narrowed = allowed, others

    def restore(self) -> None:
        """Allows the processors that `avoid_processors` has excluded, unless the affinity has changed."""
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
