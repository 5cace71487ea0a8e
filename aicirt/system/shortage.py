"""Explains operating system errors: which resource is exhausted, and how to get more of it."""

from __future__ import annotations

import errno

_CURES = {
    errno.ENOSPC: "make room there, or choose another place",
    errno.EDQUOT: "make room there, ask for a larger quota, or choose another place",
    errno.EROFS: "make it writable, or choose another place",
    errno.EAGAIN: (
        "no more processes or threads are allowed: end some, or raise the limit (ulimit -u, TasksMax of a "
        "unit, pids.max of a container)"
    ),
    errno.ENOMEM: (
        "no memory, address space or mappings are left: end other programs, or raise the limit (memory.max "
        "of a container, ulimit -v, vm.max_map_count)"
    ),
    errno.EMFILE: "this process may open no more files: raise the limit (ulimit -n)",
    errno.ENFILE: "the machine may open no more files: raise fs.file-max",
}


def is_shortage(error: OSError) -> bool:
    """Returns whether the machine is the cause: a resource is exhausted, or a file system is read-only."""
    return error.errno in _CURES


def describe(error: BaseException) -> str:
    """Returns the error's message, with a remedy if one is known."""
    cure = _CURES.get(error.errno or 0) if isinstance(error, OSError) else None
    return f"{error}: {cure}" if cure else str(error)
