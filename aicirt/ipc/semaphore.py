"""Named POSIX semaphores whose waits do not depend on the machine's time of day."""

from __future__ import annotations

import ctypes
import os
import time

import posix_ipc

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
    """`posix_ipc.Semaphore.acquire` waits until a time of day: where somebody sets the clock back by an hour
    it waits an hour longer. This one waits by the clock that nobody sets, where the C library can."""

    def __init__(self, name: str, flags: int = 0, **how: int) -> None:
        """As posix_ipc.Semaphore. Raises posix_ipc.ExistentialError also if the name goes meanwhile."""
        super().__init__(name, flags, **how)
        # the same semaphore: a process has each of them but once
        self._address: int | None = _libc.sem_open(name.encode(), 0)
        if self._address is None:
            problem = os.strerror(ctypes.get_errno())
            self.close()
            raise posix_ipc.ExistentialError(f"semaphore {name}: {problem}")

    def acquire(self, timeout: float) -> None:
        """Raises posix_ipc.BusyError after `timeout` seconds, or at once if a signal came."""
        if timeout <= 0 or _clockwait is None:
            super().acquire(timeout)
            return
        until = _TimeSpec(*divmod(time.monotonic_ns() + int(timeout * 1e9), 1_000_000_000))
        if _clockwait(self._address, time.CLOCK_MONOTONIC, until):
            raise posix_ipc.BusyError("not rung")

    def close(self) -> None:
        """Closes it."""
        super().close()
        if self._address is not None:
            _libc.sem_close(self._address)
            self._address = None
