"""Directories and files that nobody else can have written: compiled code is trusted."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from pathlib import Path

from aicirt.errors import RuntimeFailure

#: a group may be let through to files that it is allowed to read, and whose names it knows
_OTHERS = stat.S_IRGRP | stat.S_IWGRP | stat.S_IRWXO
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def private_directory(path: Path) -> Path:
    """Make `path` (mode 0700) if it is missing; its absolute name.

    Raises `RuntimeFailure` if others could put something there: it belongs to another user, is
    open to others, is a link, or lies in a directory where others may rename it.
    """
    path = path.absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise RuntimeFailure(f"{path} must be a directory of its own, not a link or file")
    if found.st_uid != os.geteuid():
        raise RuntimeFailure(f"{path} belongs to user {found.st_uid}, not to {os.geteuid()}: choose another")
    if found.st_mode & _OTHERS:
        mode = stat.S_IMODE(found.st_mode)
        raise RuntimeFailure(f"{path} is open to other users (mode {mode:o}): empty it and chmod 700")
    for parent in path.resolve().parents:
        above = parent.stat()
        movable = above.st_mode & _OTHERS_WRITE and not above.st_mode & stat.S_ISVTX
        if movable or above.st_uid not in (0, os.geteuid()):
            raise RuntimeFailure(f"{parent}, above {path}, can be changed by other users")
    return path


def let_read(path: Path, gid: int) -> None:
    """Lets a group read a file of ours, or go through a directory; nothing more. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        mode = 0o710 if stat.S_ISDIR(found.st_mode) else 0o640
        if found.st_gid != gid or stat.S_IMODE(found.st_mode) != mode:
            os.fchown(fd, -1, gid)
            os.fchmod(fd, mode)
    finally:
        os.close(fd)


def is_private_file(path: Path) -> bool:
    """Whether this is a regular file of ours that nobody else can write."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and _is_ours(found)


def _is_ours(found: os.stat_result) -> bool:
    return found.st_uid == os.geteuid() and not found.st_mode & _OTHERS_WRITE


def read_regular(path: Path, most: int, *, ours: bool = False) -> bytes | None:
    """The first `most` bytes of a regular file in a folder that others may write; None if there is none.

    A FIFO, socket, device, directory or link counts as nothing, and nothing blocks. With `ours` only a file
    counts that belongs to this user and that nobody else can write. Raises OSError if it cannot be read.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link; a socket
            return None
        raise
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or (ours and not _is_ours(found)):
        os.close(fd)
        return None
    with os.fdopen(fd, "rb") as file:
        return file.read(most)


def is_regular(path: Path) -> bool:
    """Whether there is a regular file, which is not opened."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def write_whole(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write a file that appears complete or not at all, also after a crash of the machine."""
    fd, temporary = tempfile.mkstemp(prefix=".new-", dir=path.parent)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        move_whole(Path(temporary), path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def move_whole(temporary: Path, path: Path) -> None:
    """Give a complete, synced file its name, for good."""
    os.replace(temporary, path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
