"""Landlock: removes the rights to open files, to use the network and to signal other processes.

Uses raw system calls because the C library has no functions for them. Open files stay open. Existing threads
keep their rights, so restrict the process before it starts any.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from enum import IntFlag
from pathlib import Path

from aicirt.sandbox import kernel

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446
_VERSION, _PATH_BENEATH = 1, 1


class Access(IntFlag):
    """Rights on files: LANDLOCK_ACCESS_FS_*."""

    EXECUTE = 1
    WRITE_FILE = 2
    READ_FILE = 4
    READ_DIR = 8
    #: all rights of version 1, including creating and removing files of every kind
    VERSION_1 = (1 << 13) - 1
    REFER = 1 << 13
    TRUNCATE = 1 << 14
    IOCTL_DEV = 1 << 15


#: version of the kernel's interface -> rights that it adds
_SINCE = {1: Access.VERSION_1, 2: Access.REFER, 3: Access.TRUNCATE, 5: Access.IOCTL_DEV}
#: since version 4: TCP bind and connect; since version 6: abstract Unix sockets, signals to other processes
_NET, _SCOPES = 3, 3
#: rights that a rule for a single file may have
_OF_FILES = Access.EXECUTE | Access.WRITE_FILE | Access.READ_FILE | Access.TRUNCATE | Access.IOCTL_DEV


class _Ruleset(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("files", "net", "scopes")]


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("access", ctypes.c_uint64), ("fd", ctypes.c_int32)]


def version() -> int:
    """Returns the version of the kernel's interface; 0 if Landlock is missing or disabled."""
    try:
        return kernel.call(_CREATE, None, 0, _VERSION)
    except OSError:
        return 0


def restrict(allowed: Iterable[tuple[Path, Access]]) -> int:
    """Restricts this thread, and all threads it starts, to the `allowed` paths and everything below them.

    Also refuses TCP, abstract Unix sockets and signals to processes outside, where the kernel can. The
    process must have no_new_privs. Ignores paths that do not exist. Returns the `version`; 0 if Landlock is
    missing and nothing was restricted. Raises OSError if the kernel refuses.
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
    fd = kernel.call(_CREATE, ctypes.byref(ruleset), ctypes.c_size_t(size), 0)
    try:
        for path, access in allowed:
            _allow(fd, path, access & files)
        kernel.call(_RESTRICT, fd, 0)
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
        kernel.call(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(fd)
