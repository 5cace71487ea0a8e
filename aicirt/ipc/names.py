"""Names of semaphores, and the removal of orphaned ones.

A name identifies its creator: ``/aici-<uid>-<pid>-<start time>-<random>``. The start time
(clock ticks since boot) shows whether that same process is still alive, so names that a killed
process has left behind can be removed.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
from pathlib import Path

import posix_ipc

from aicirt.system.files import Descriptor

_SHM_DIR = Path("/dev/shm")
_NAME = re.compile(r"^sem\.(?P<name>aici-(?P<uid>\d+)-(?P<pid>\d+)-(?P<start>\d+)-[0-9a-f]+)$")


def process_start_time(pid: int) -> int | None:
    """Returns a process's start time in clock ticks since boot; None if it does not exist or has ended.

    Raises OSError if that cannot be known, for instance because no more files can be opened.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # the command name may contain spaces and parentheses: the fields follow the last ')'
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def fresh_name() -> str:
    """Returns an unused name that identifies this process, with the leading slash that posix_ipc needs.

    Raises OSError if the process may open no more files.
    """
    pid = os.getpid()
    return f"/aici-{os.getuid()}-{pid}-{process_start_time(pid)}-{secrets.token_hex(6)}"


def unlink_semaphore(name: str) -> None:
    """Removes the name, if it still exists."""
    try:
        posix_ipc.unlink_semaphore(name)
    except posix_ipc.ExistentialError:
        pass


def open_semaphore(name: str) -> Descriptor:
    """Opens the file of a semaphore. Raises OSError."""
    path = _SHM_DIR / f"sem.{name.removeprefix('/')}"
    return Descriptor(os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC))


def _is_ours(found: os.stat_result) -> bool:
    """Returns whether this is a regular file of this user; other users may put anything into the folder."""
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()


def sweep_orphans() -> list[str]:
    """Removes this user's names whose process is gone; returns the removed names.

    Skips files that other users have created under such a name, and files that cannot be removed.
    """
    removed = []
    for entry in _SHM_DIR.iterdir() if _SHM_DIR.is_dir() else ():
        match = _NAME.match(entry.name)
        if match is None or int(match["uid"]) != os.getuid():
            continue
        with contextlib.suppress(OSError, posix_ipc.Error):
            if process_start_time(int(match["pid"])) != int(match["start"]) and _is_ours(entry.lstat()):
                unlink_semaphore("/" + match["name"])
                removed.append(entry.name)
    return removed
