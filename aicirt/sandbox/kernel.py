"""Wrappers for system calls that Python lacks, which raise their errors."""

from __future__ import annotations

import ctypes
import os

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_PR_SET_DUMPABLE = 4


def call(number: int, *args: object) -> int:
    """Makes the system call `number`. Raises OSError."""
    return _checked(int(_libc.syscall(number, *args)), f"system call {number}")


def prctl(option: int, *args: int) -> int:
    """Calls prctl with up to four arguments; returns its result. Raises OSError."""
    words = [ctypes.c_ulong(word) for word in (*args, 0, 0, 0, 0)[:4]]
    return _checked(int(_libc.prctl(option, *words)), f"prctl {option}")


def unshare(flags: int) -> None:
    """Moves this process, while it has one thread, into new namespaces. Raises OSError."""
    _checked(int(_libc.unshare(flags)), "unshare")


def drop_capabilities() -> None:
    """Drops all capabilities of this thread, for ever if it also has no_new_privs. Raises OSError."""
    version_3 = 0x20080522
    header = (ctypes.c_uint32 * 2)(version_3, 0)
    _checked(int(_libc.capset(header, (ctypes.c_uint32 * 6)())), "capset")


def set_dumpable(dumpable: bool) -> None:
    """Sets whether this user's other processes may inspect this one; if not, root owns its files in /proc."""
    prctl(_PR_SET_DUMPABLE, int(dumpable))


def _checked(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result
