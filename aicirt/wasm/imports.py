"""All functions that a controller may import: module ``aici``, and a subset of WASI preview 1."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from aicirt.contract.abi import IMPORT_MODULE, IMPORTS, WASI, WASI_SIGNATURES, wasi_type
from aicirt.contract.errors import ControllerFailed, ResultError, RuntimeFailure
from aicirt.wasm.host import GuestExit, HostCallable, HostFunction

if TYPE_CHECKING:
    from aicirt.wasm.instance import Instance


SUCCESS, EBADF, EFAULT, EINVAL, ENOSYS, ESPIPE = 0, 8, 21, 28, 52, 70

#: entries of an iovec list; a longer list is an error (as IOV_MAX elsewhere)
_MAX_IOVECS = 1024
#: bytes written by one fd_write; a caller with more gets a short write and calls again. This bounds the time
#: between two checks of the time limit
_MAX_WRITE = 65536
#: bytes of one random_get, for the same reason
_MAX_RANDOM = 65536
#: reported resolution of the clocks, which advance once per step
_CLOCK_RESOLUTION_NS = 1_000_000
#: fdstat of a character device that cannot seek. C's stdio takes it for a terminal and flushes stdout at each
#: newline; a reactor never exits, so buffered output would be lost
_TERMINAL = bytes([2, 0, 0, 0, 0, 0, 0, 0]) + (1 << 1 | 1 << 6).to_bytes(8, "little") + bytes(8)


def _nothing(guest: Instance, count_at: int, size_at: int) -> int:
    return _put(guest, count_at, bytes(4)) or _put(guest, size_at, bytes(4))


def _put(guest: Instance, address: int, data: bytes) -> int:
    try:
        guest.write_memory(address, data)
    except ResultError:
        return EFAULT
    return SUCCESS


def _success(*_args: int) -> int:
    return SUCCESS


def _clock_res_get(guest: Instance, clock: int, at: int) -> int:
    return EINVAL if clock > 3 else _put(guest, at, _CLOCK_RESOLUTION_NS.to_bytes(8, "little"))


def _clock_time_get(guest: Instance, clock: int, _precision: int, at: int) -> int:
    if guest.clock_ns is None:  # read at most once in a step
        guest.clock_ns = time.time_ns()
    return EINVAL if clock > 3 else _put(guest, at, guest.clock_ns.to_bytes(8, "little"))


def _bad_fd(*_args: int) -> int:
    return EBADF


def _fd_close(_guest: Instance, fd: int) -> int:
    return SUCCESS if fd <= 2 else EBADF


def _fd_fdstat_get(guest: Instance, fd: int, at: int) -> int:
    return _put(guest, at, _TERMINAL) if fd <= 2 else EBADF


def _fd_seek(_guest: Instance, fd: int, *_args: int) -> int:
    return ESPIPE if fd <= 2 else EBADF


def _fd_read(guest: Instance, fd: int, _iovecs: int, _count: int, read_at: int) -> int:
    return _put(guest, read_at, bytes(4)) if fd == 0 else EBADF


def _fd_write(guest: Instance, fd: int, iovecs: int, count: int, written_at: int) -> int:
    if fd not in (1, 2):
        return EBADF
    if count > _MAX_IOVECS:
        return EINVAL
    try:
        data = bytearray()
        table = guest.read(iovecs, 8 * count)
        for i in range(0, 8 * count, 8):
            start = int.from_bytes(table[i : i + 4], "little")
            length = int.from_bytes(table[i + 4 : i + 8], "little")
            guest.check(start, length)
            data += guest.read(start, min(length, _MAX_WRITE - len(data)))
        guest.write_memory(written_at, len(data).to_bytes(4, "little"))
    except ResultError:
        return EFAULT
    if guest.log is not None and data:
        guest.log(fd, bytes(data))
    return SUCCESS


def _proc_exit(_guest: Instance, status: int) -> None:
    if status:
        raise ControllerFailed(f"the controller exited with status {status}", status=status)
    raise GuestExit("proc_exit")


def _random_get(guest: Instance, at: int, length: int) -> int:
    if length > _MAX_RANDOM:
        return EINVAL
    if guest.random is None:
        guest.random = random.Random(guest.seed)
    return _put(guest, at, guest.random.randbytes(length))


def _no_such_call(*_args: int) -> int:
    return ENOSYS


_IMPLEMENTED: dict[str, HostCallable] = {
    "args_get": _success,
    "args_sizes_get": _nothing,
    "environ_get": _success,
    "environ_sizes_get": _nothing,
    "clock_res_get": _clock_res_get,
    "clock_time_get": _clock_time_get,
    "fd_close": _fd_close,
    "fd_fdstat_get": _fd_fdstat_get,
    "fd_prestat_get": _bad_fd,
    "fd_prestat_dir_name": _bad_fd,
    "fd_read": _fd_read,
    "fd_seek": _fd_seek,
    "fd_tell": _fd_seek,
    "fd_write": _fd_write,
    "proc_exit": _proc_exit,
    "random_get": _random_get,
    "sched_yield": _success,
}


def wasi_functions() -> list[HostFunction]:
    """Returns all of WASI preview 1, for the linker; functions outside the subset return ENOSYS."""
    return [HostFunction(WASI, n, wasi_type(n), _IMPLEMENTED.get(n, _no_such_call)) for n in WASI_SIGNATURES]


def host_functions(
    calls: Mapping[str, HostCallable], timed: Mapping[str, Callable[..., int]] | None = None
) -> list[HostFunction]:
    """Returns module ``aici`` made from `calls`, one callable per name of aici.h, and WASI.

    A callable takes (instance, *unsigned ints) and returns an int, or None if the import has no result.
    `timed`: the work of the callables that may take long, see `HostFunction`. Raises `RuntimeFailure` if a
    name is missing or unknown.
    """
    if calls.keys() != IMPORTS.keys():
        wrong = sorted(calls.keys() ^ IMPORTS.keys())
        raise RuntimeFailure(f"host functions do not match aici.h: {', '.join(wrong)}")
    works = timed or {}
    own = [HostFunction(IMPORT_MODULE, n, kind, calls[n], works.get(n)) for n, kind in IMPORTS.items()]
    return own + wasi_functions()
