"""Memory of guests: finding changed pages, mapping files, and freeing the memory of closed guests."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import resource
import threading
from collections import deque
from queue import SimpleQueue
from typing import TYPE_CHECKING

from aicirt.contract.errors import RuntimeFailure
from aicirt.wasm import raw

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Functions import numpy themselves: the compiler process needs none of them, and importing it takes 0.1 s

PAGE = mmap.PAGESIZE

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_MAP_FIXED = 0x10


def map_private(address: int, nbytes: int, fd: int, offset: int = 0) -> None:
    """Maps `nbytes` of `fd` copy-on-write at `address`, in place of the pages there.

    Raises `RuntimeFailure` if the kernel refuses.
    """
    _map(address, nbytes, mmap.MAP_PRIVATE, fd, offset)


def map_zeros(address: int, nbytes: int) -> None:
    """Puts zeros in place of the pages at `address`. Raises `RuntimeFailure` if the kernel refuses."""
    _map(address, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)


def _map(address: int, nbytes: int, flags: int, fd: int, offset: int) -> None:
    found = _libc.mmap(address, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, flags | _MAP_FIXED, fd, offset)
    if found != address:
        why = os.strerror(ctypes.get_errno())
        raise RuntimeFailure(
            f"no more memory can be mapped ({why}): the process may have too many guests "
            "(sysctl vm.max_map_count)"
        )


def copy_runs(runs: list[tuple[int, int]], offset: int) -> None:
    """Copies runs (address, bytes) of pages to addresses that are `offset` bytes higher."""
    for address, length in runs:
        ctypes.memmove(address + offset, address, length)


class _ScanArg(ctypes.Structure):
    """The struct pm_scan_arg of linux/fs.h."""

    _fields_ = [
        ("size", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
        ("start", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("walk_end", ctypes.c_uint64),
        ("vec", ctypes.c_uint64),
        ("vec_len", ctypes.c_uint64),
        ("max_pages", ctypes.c_uint64),
        ("category_inverted", ctypes.c_uint64),
        ("category_mask", ctypes.c_uint64),
        ("category_anyof_mask", ctypes.c_uint64),
        ("return_mask", ctypes.c_uint64),
    ]


_FILE, _PRESENT, _SWAPPED, _ZERO = 4, 8, 16, 32
#: _IOWR('f', 16, struct pm_scan_arg)
_PAGEMAP_SCAN = 3 << 30 | ctypes.sizeof(_ScanArg) << 16 | ord("f") << 8 | 16
_MAX_REGIONS = 512


class PageScanner:
    """Finds changed pages by asking the kernel (PAGEMAP_SCAN, Linux 6.7).

    Changed pages of a private mapping are anonymous. Untouched pages belong to the file, are the zero page,
    or do not exist.
    """

    __slots__ = ("_arg", "_fd", "_regions")

    def __init__(self) -> None:
        """Raises `OSError` if the kernel does not support PAGEMAP_SCAN."""
        self._fd = _open_pagemap()
        self._regions = (ctypes.c_uint64 * (3 * _MAX_REGIONS))()
        self._arg = _ScanArg(
            size=ctypes.sizeof(_ScanArg),
            vec=ctypes.addressof(self._regions),
            vec_len=_MAX_REGIONS,
            category_inverted=_FILE | _ZERO,
            category_mask=_FILE | _ZERO,
            category_anyof_mask=_PRESENT | _SWAPPED,
            return_mask=_PRESENT,
        )
        try:
            self.changed(0, 0)
        except OSError:
            os.close(self._fd)
            raise

    def changed(self, start: int, end: int) -> list[tuple[int, int]]:
        """Returns runs (address, bytes) of changed pages between two page-aligned addresses."""
        runs: list[tuple[int, int]] = []
        while True:
            self._arg.start, self._arg.end = start, end
            count = fcntl.ioctl(self._fd, _PAGEMAP_SCAN, self._arg)
            found = self._regions[: 3 * count]
            runs += [(found[i], found[i + 1] - found[i]) for i in range(0, 3 * count, 3)]
            start = self._arg.walk_end
            if count < _MAX_REGIONS or start >= end:
                return runs

    def count(self, start: int, end: int) -> int:
        """Returns the bytes of changed pages between two page-aligned addresses."""
        import numpy as np

        total = 0
        while True:
            self._arg.start, self._arg.end = start, end
            count = fcntl.ioctl(self._fd, _PAGEMAP_SCAN, self._arg)
            if count:
                found = np.frombuffer(memoryview(self._regions), np.uint64, 3 * count)
                total += int((found[1::3] - found[::3]).sum())
            start = self._arg.walk_end
            if count < _MAX_REGIONS or start >= end:
                return total

    def close(self) -> None:
        os.close(self._fd)


class PagemapReader:
    """Finds changed pages on older kernels, from the 8 bytes per page in /proc/self/pagemap.

    Also reports zero pages as changed, which costs a copy and is otherwise harmless.
    """

    __slots__ = ("_fd",)

    def __init__(self) -> None:
        self._fd = _open_pagemap()

    def changed(self, start: int, end: int) -> list[tuple[int, int]]:
        """Returns runs of changed pages; see `PageScanner.changed`."""
        return _runs(start, self._marked(start, end))

    def count(self, start: int, end: int) -> int:
        """Returns the bytes of changed pages; see `PageScanner.count`."""
        return int(self._marked(start, end).sum()) * PAGE

    def _marked(self, start: int, end: int) -> NDArray[np.bool_]:
        import numpy as np

        entries = np.frombuffer(os.pread(self._fd, (end - start) // PAGE * 8, start // PAGE * 8), np.uint64)
        there = entries >> np.uint64(62) != 0  # bit 63: present, bit 62: swapped
        of_file = entries >> np.uint64(61) & np.uint64(1) != 0
        return np.asarray(there & ~of_file)

    def close(self) -> None:
        os.close(self._fd)


def page_faults() -> int:
    """Returns how many pages the kernel has supplied to, or copied for, the calling thread on access."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt


def _open_pagemap() -> int:
    return os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)


def change_finder(use_scan: bool = True) -> PageScanner | PagemapReader:
    """Returns the fastest finder that this kernel supports. It sees only the process that made it.

    Call this while the process is dumpable: later, /proc/self belongs to root. Raises `RuntimeFailure` if
    /proc/self/pagemap cannot be opened.
    """
    if use_scan:
        try:
            return PageScanner()
        except OSError:
            pass
    try:
        return PagemapReader()
    except OSError as error:
        raise RuntimeFailure(
            f"cannot find changed memory pages: {error}. Mount /proc, and create the engine before the "
            "process becomes undumpable"
        ) from None


def nonzero(start: int, nbytes: int) -> list[tuple[int, int]]:
    """Returns runs (address, bytes) of pages at `start` that have nonzero bytes."""
    import numpy as np

    words = np.frombuffer(memoryview((ctypes.c_ubyte * nbytes).from_address(start)), np.uint64)
    return _runs(start, np.asarray(words.reshape(-1, PAGE // 8).any(axis=1)))


def _runs(start: int, marked: NDArray[np.bool_]) -> list[tuple[int, int]]:
    import numpy as np

    edges = np.flatnonzero(np.diff(marked.astype(np.int8), prepend=0, append=0))
    pairs = edges.reshape(-1, 2).tolist()
    return [(start + first * PAGE, (last - first) * PAGE) for first, last in pairs]


#: A guest with less memory is freed at once, in less than 0.2 ms; handing it to the thread takes 0.02 ms.
MIN_BYTES = 4 << 20


class Reaper:
    """A thread that frees large guests.

    The kernel takes up to 4 ms to unmap 64 MiB of a guest. A user can end many such guests at once, and the
    sequences of others would wait for all of them.
    """

    def __init__(self) -> None:
        self._stores: SimpleQueue[int | threading.Event | None] = SimpleQueue()
        #: bytes of each store that has not been freed yet, oldest first
        self._sizes: deque[int] = deque()
        self._thread: threading.Thread | None = None

    @property
    def pending_bytes(self) -> int:
        """Upper bound in bytes on the memory of closed guests that has not been freed yet."""
        return sum(tuple(self._sizes))

    def start(self) -> None:
        """Starts the thread. Raises RuntimeFailure if no thread can be made."""
        self._thread = threading.Thread(target=self._free_stores, name="reaper", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            raise RuntimeFailure("a worker cannot start: no thread is left (raise ulimit -u)") from error

    def free(self, store: int, nbytes: int) -> None:
        """Frees a wasmtime store soon. The caller must no longer use it."""
        self._sizes.append(nbytes)
        self._stores.put(store)

    def drain(self) -> None:
        """Waits until all stores that were passed to `free` before are freed."""
        done = threading.Event()
        self._stores.put(done)
        done.wait()

    def end_thread(self) -> None:
        """Frees the remaining stores and ends the thread."""
        if self._thread is not None:
            self._stores.put(None)
            self._thread.join()
            self._thread = None

    def _free_stores(self) -> None:
        while (job := self._stores.get()) is not None:
            if isinstance(job, threading.Event):
                job.set()
            else:
                raw.store_delete_unlocked(job)
                self._sizes.popleft()
