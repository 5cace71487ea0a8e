"""File descriptors with an owner, memory files of a sealed size, and files that no other user can write."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import stat
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from aicirt.contract.errors import ProtocolError, RuntimeFailure


def cache_folder() -> Path:
    """Returns ``$XDG_CACHE_HOME/aici``, by default ``~/.cache/aici``."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # the specification requires that relative paths are ignored
    return (base if base.is_absolute() else Path.home() / ".cache") / "aici"


class Closing(ABC):
    """Something that is closed at the end of a `with` block."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Ends its use. Idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Descriptor:
    """A file descriptor that is closed when the object is garbage-collected."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)


#: mappings of the file would show later writes, and a truncation would cause SIGBUS
SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW

_libc = ctypes.CDLL(None, use_errno=True)
_libc.pwrite.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_long]
_libc.pwrite.restype = ctypes.c_ssize_t


def sealed(name: str, nbytes: int, ranges: Iterable[tuple[int, int, int]]) -> int:
    """Creates a sealed memfd of `nbytes` and returns its descriptor, which the caller owns.

    Copies each of `ranges`, (address in this process, offset, bytes), into the file; the rest is zero.
    Raises `RuntimeFailure` if no memory or descriptor is left.
    """
    try:
        return _fill(os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), nbytes, ranges)
    except OSError as error:
        raise RuntimeFailure(f"a memory file of {nbytes} bytes cannot be created: {error}") from None


def sealed_bytes(name: str, data: bytes) -> int:
    """Does the same as `sealed`, for a file of `data`."""
    address = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0
    return sealed(name, len(data), [(address, 0, len(data))])


def _fill(fd: int, nbytes: int, ranges: Iterable[tuple[int, int, int]]) -> int:
    try:
        if nbytes:
            os.pwrite(fd, b"\0", nbytes - 1)  # a sandbox refuses ftruncate
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
    """Raises `RuntimeFailure` unless `fd` is a sealed memory file of at least `nbytes`."""
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError as error:
        raise RuntimeFailure(f"file descriptor {fd} is not a memory file: {error}") from None
    if seals & SEALS != SEALS:
        raise RuntimeFailure(f"memory file {fd} is not sealed against writes, shrinking and growing")
    size = os.fstat(fd).st_size
    if size < nbytes:
        raise RuntimeFailure(f"memory file {fd} has {size} bytes, but {nbytes} were expected")


#: neither side can change the size: access behind the end of a file kills the process with SIGBUS
_SHARED = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
#: seals against writes (the second is F_SEAL_FUTURE_WRITE): a shared file could not be used
_READ_ONLY = fcntl.F_SEAL_WRITE | 0x10


def create_shared(name: str, nbytes: int, reserved: int) -> Descriptor:
    """Creates a memory file of zeros, and reserves the memory of its first `reserved` bytes. Raises OSError.

    A write to a page that cannot be allocated would kill the process with SIGBUS.
    """
    file = Descriptor(os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))
    os.ftruncate(file.fd, nbytes)
    os.posix_fallocate(file.fd, 0, reserved)
    fcntl.fcntl(file.fd, fcntl.F_ADD_SEALS, _SHARED)
    return file


def map_shared(fd: int, nbytes: int, what: str) -> mmap.mmap:
    """Maps the file of another process. Raises ProtocolError if its size is another one, or could change.

    `what`: what the file is, for the error.
    """
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError:  # not a memory file
        seals = 0
    # the kernel may add others: where vm.memfd_noexec is set, one against making the file executable
    if seals & (_SHARED | _READ_ONLY) != _SHARED:
        raise ProtocolError(f"the {what} is not a memory file of a sealed size")
    size = os.fstat(fd).st_size
    if size != nbytes:
        raise ProtocolError(f"the {what} has {size} bytes; expected {nbytes}")
    return mmap.mmap(fd, nbytes)


#: a group may have the right to traverse the directory (x), to reach readable files whose names it knows
_OTHERS = stat.S_IRGRP | stat.S_IWGRP | stat.S_IRWXO
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def private_directory(path: Path) -> Path:
    """Creates the directory `path` (mode 0700) if it is missing; returns its absolute path.

    Raises `RuntimeFailure` if other users could put files there: the directory belongs to another user, is
    open to others, is a link, or lies in a directory where others may rename it. The last is not looked at
    with AICI_SINGLE_USER=1, which says that all processes that see the directory belong to one user, as in a
    container: Kubernetes opens volumes to everybody.
    """
    path = path.absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise RuntimeFailure(f"{path} must be a directory, not a link or file")
    if found.st_uid != os.geteuid():
        raise RuntimeFailure(
            f"{path} belongs to user {found.st_uid}, not to {os.geteuid()}: choose another directory"
        )
    if found.st_mode & _OTHERS:
        mode = stat.S_IMODE(found.st_mode)
        raise RuntimeFailure(f"{path} is open to other users (mode {mode:o}): empty it and chmod 700")
    for parent in () if os.environ.get("AICI_SINGLE_USER") == "1" else path.resolve().parents:
        above = parent.stat()
        movable = above.st_mode & _OTHERS_WRITE and not above.st_mode & stat.S_ISVTX
        if movable or above.st_uid not in (0, os.geteuid()):
            raise RuntimeFailure(
                f"{parent}, above {path}, can be changed by other users: choose another directory, or set "
                "AICI_SINGLE_USER=1 if there are none, as in a container"
            )
    return path


def let_read(path: Path, gid: int) -> None:
    """Lets a group read one of our files, or traverse a directory, and nothing else. Raises OSError."""
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
    """Returns whether this is a regular file of this user that no other user can write."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and _is_ours(found)


def _is_ours(found: os.stat_result) -> bool:
    return found.st_uid == os.geteuid() and not found.st_mode & _OTHERS_WRITE


def read_regular(path: Path, most: int, *, ours: bool = False) -> bytes | None:
    """Returns the first `most` bytes of a regular file in a folder that others may write; None if missing.

    Treats a FIFO, socket, device, directory or link as missing, and never blocks. With `ours`, also treats a
    file as missing if it belongs to another user or others can write it. Raises OSError if reading fails.
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
    """Returns whether there is a regular file, without opening it."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def write_whole(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Writes a file atomically: it appears complete or not at all, even after a crash of the machine."""
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
    """Renames a complete, synced file, and syncs its directory."""
    os.replace(temporary, path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
