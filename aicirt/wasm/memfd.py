"""Sealed memory files: bytes that nobody can change, truncate or extend any more."""

from __future__ import annotations

import ctypes
import fcntl
import os
from collections.abc import Iterable

from aicirt.errors import RuntimeFailure

#: a later write would show through mappings of the file, a truncation would be a SIGBUS
SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW

_libc = ctypes.CDLL(None, use_errno=True)
_libc.pwrite.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_long]
_libc.pwrite.restype = ctypes.c_ssize_t


def sealed(name: str, nbytes: int, ranges: Iterable[tuple[int, int, int]]) -> int:
    """A sealed memfd of `nbytes` zeros, except for `ranges` of (address here, offset, bytes).

    The caller owns the descriptor. Raises `RuntimeFailure` if there is no memory or descriptor left.
    """
    try:
        return _fill(os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), nbytes, ranges)
    except OSError as error:
        raise RuntimeFailure(f"a memory file of {nbytes} bytes cannot be made: {error}") from None


def sealed_bytes(name: str, data: bytes) -> int:
    """The same with these bytes."""
    buffer = ctypes.create_string_buffer(data, max(1, len(data)))
    return sealed(name, len(data), [(ctypes.addressof(buffer), 0, len(data))])


def _fill(fd: int, nbytes: int, ranges: Iterable[tuple[int, int, int]]) -> int:
    try:
        os.ftruncate(fd, nbytes)
        for address, offset, length in ranges:
            while length:
                done = _libc.pwrite(fd, address, length, offset)
                if done <= 0:
                    code = ctypes.get_errno()
                    raise OSError(code, os.strerror(code))
                address, offset, length = address + done, offset + done, length - done
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS | fcntl.F_SEAL_SEAL)
    except BaseException:
        os.close(fd)
        raise
    return fd


def check_sealed(fd: int, nbytes: int) -> None:
    """Raises `RuntimeFailure` unless `fd` holds at least `nbytes` that can never change."""
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError as error:
        raise RuntimeFailure(f"file descriptor {fd} is not a memory file: {error}") from None
    if seals & SEALS != SEALS:
        raise RuntimeFailure(f"memory file {fd} is not sealed against writes, shrinking and growing")
    size = os.fstat(fd).st_size
    if size < nbytes:
        raise RuntimeFailure(f"memory file {fd} has {size} bytes, {nbytes} were announced")
