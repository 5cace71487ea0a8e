"""Landlock: a process gives up the right to open files, to reach the network and to signal others.

By system calls, as the C library has no functions for them. What is open stays open. Threads that are there
already keep their rights, so this comes before any is made.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from enum import IntFlag
from pathlib import Path

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446
_VERSION, _PATH_BENEATH = 1, 1
_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class Access(IntFlag):
    """What may be done with files; LANDLOCK_ACCESS_FS_*."""

    EXECUTE = 1
    WRITE_FILE = 2
    READ_FILE = 4
    READ_DIR = 8
    #: all that there are in version 1: also making and removing files of every kind
    VERSION_1 = (1 << 13) - 1
    REFER = 1 << 13
    TRUNCATE = 1 << 14
    IOCTL_DEV = 1 << 15


#: version of the kernel's interface -> rights that it knows besides those of the versions before
_SINCE = {1: Access.VERSION_1, 2: Access.REFER, 3: Access.TRUNCATE, 5: Access.IOCTL_DEV}
#: bind and connect by TCP, since version 4; abstract Unix sockets and signals of others, since version 6
_NET, _SCOPES = 3, 3
#: rights that rules for single files may have
_OF_FILES = Access.EXECUTE | Access.WRITE_FILE | Access.READ_FILE | Access.TRUNCATE | Access.IOCTL_DEV


class _Ruleset(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("files", "net", "scopes")]


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("access", ctypes.c_uint64), ("fd", ctypes.c_int32)]


def version() -> int:
    """Of the kernel's interface; 0 where it has none, or it is turned off."""
    return max(0, int(_libc.syscall(_CREATE, None, 0, _VERSION)))


def restrict(allowed: Iterable[tuple[Path, Access]]) -> int:
    """From now on this thread, and what it starts, may use files only as `allowed`, each with all below it.

    TCP, abstract Unix sockets and signals to processes outside are refused where the kernel can. The
    process must have no_new_privs. Paths that do not exist are left out. Returns the `version`; 0: nothing
    was done. Raises OSError if the kernel refuses.
    """
    known = version()
    if known == 0:
        return 0
    files = Access(0)
    for since, rights in _SINCE.items():
        if known >= since:
            files |= rights
    ruleset = _Ruleset(files, _NET if known >= 4 else 0, _SCOPES if known >= 6 else 0)
    size = 24 if known >= 6 else 16 if known >= 4 else 8
    fd = _call(_CREATE, ctypes.byref(ruleset), ctypes.c_size_t(size), 0)
    try:
        for path, access in allowed:
            _allow(fd, path, access & files)
        _call(_RESTRICT, fd, 0)
    finally:
        os.close(fd)
    return known


def _allow(ruleset: int, path: Path, access: Access) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        rule = _PathBeneath(access if path.is_dir() else access & _OF_FILES, fd)
        _call(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(fd)


def _call(number: int, *args: object) -> int:
    result: int = _libc.syscall(number, *args)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"landlock (system call {number}): {os.strerror(code)}")
    return result
