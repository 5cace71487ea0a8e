"""What a worker gives up before it runs a stranger's code: should a guest break out, it finds little."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import time
from pathlib import Path

from aicirt.worker import landlock
from aicirt.worker.landlock import Access

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38
#: where a package of Python that is imported later finds libraries of the system
_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache")
_prctl = ctypes.CDLL(None, use_errno=True).prctl


def bind_to(parent: int) -> None:
    """Dies with the supervisor, gains no privileges, leaves no core file. Exits if `parent` is gone."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if os.getppid() != parent:  # it died before the signal was set
        raise SystemExit(1)


def close_in(code: Path) -> int:
    """Leaves what a worker needs: to read compiled modules below `code`, Python's own files and libraries,
    and to use shared memory. Returns the version of Landlock, 0 where there is none.

    Before threads are made. Raises OSError.
    """
    time.tzset()  # reads a file at the first time that is logged
    readable = Access.READ_FILE | Access.READ_DIR
    libraries = {sys.prefix, sys.base_prefix, *sys.path, *_LIBRARIES}
    return landlock.restrict(
        [
            (code, readable),
            *((Path(path), readable) for path in sorted(libraries) if path),
            (Path("/dev/shm"), Access.READ_FILE | Access.WRITE_FILE),
        ]
    )


def hide() -> None:
    """Other processes of this user cannot look into this one; /proc/self is closed to itself too,
    so the engine opens what it needs of it before."""
    _prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
