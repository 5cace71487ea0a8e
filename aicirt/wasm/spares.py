"""Spare guests: ended guests whose memory stays mapped, for later guests of the same program.

Making a guest takes 0.1 ms, unmapping one as long, and the first access to each part of the vocabulary a page
fault. A spare guest gets the state of a new one:

- Pages that the ended guest has changed get their contents from the snapshot again. If they are many, they
  are dropped; a few are copied, as the next guest will change most of them, and each would be a page fault.
- Guests that compile arguments follow one another: a spare guest of theirs is reserved for the next one.
- For another snapshot of the program, with the same vocabulary, all memory but the vocabulary is replaced.
- The whole vocabulary is mapped, once: a text that touches little of it may come before one that needs all.
- All mutable globals are set at the start, and tables never change.
- Only memory.init could tell whether a data segment was dropped: modules that have it have no spare guests.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import TYPE_CHECKING

from aicirt.wasm.image import Shell, own_runs

if TYPE_CHECKING:
    from aicirt.wasm.image import Runs
    from aicirt.wasm.instance import Instance
    from aicirt.wasm.program import Snapshot

#: the most memory that is dropped, as unmapping costs less than dropping more; and the most bytes of tables
#: and functions that a spare guest may keep
_MAX_CHANGED, _MAX_KEPT = 1 << 20, 256 << 10
#: the most memory that is copied: a spare guest keeps it, and it counts for the next guest from its start on.
#: More for a reserved one
_MAX_COPIED, _MAX_RESERVED = 128 << 10, 512 << 10
#: bytes between two changed pages up to which those between them are dropped, too: one call of the kernel
#: costs as much as mapping so many again
_GAP = 128 << 10

#: of <linux/mman.h>; mmap has no name for it
_MADV_POPULATE_READ = 22

_libc = ctypes.PyDLL(None)
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def keep(origin: Snapshot, guest: Instance, runs: Runs | None, reserved: bool) -> bool:
    """Makes a spare guest of one that has ended, if it can have the memory of `origin`.

    Otherwise, the caller must free the guest. `runs`: its changed pages; None = not known. `reserved`: later
    guests of the same snapshot get it, one at a time.
    """
    spares, image = guest.engine.spares, origin.image
    if not spares.limit or image is None or not _is_like(guest, origin):
        return False
    if runs is None:
        runs = guest.engine.changes.changed(guest.base, guest.base + guest.size)
    nbytes = sum(length for _, length in runs)
    if nbytes > _MAX_CHANGED:
        return False
    copied = nbytes <= (_MAX_RESERVED if reserved else _MAX_COPIED) and _copy(guest, runs)
    if not copied and not _drop(runs):
        return False
    if not guest.again:
        _populate(guest)
    base = guest.base
    shell = Shell(*guest.part(), base, image, origin.mappings, origin.size, reserved=reserved)
    origin.program.spares.append(shell)
    spares.add(shell)
    return True


def take_spare(wanted: Snapshot) -> Shell | None:
    """Returns a spare guest for a snapshot, which the caller must adopt; None if there is none.

    Prefers the last one of the same snapshot, then the oldest of another.
    """
    spares = wanted.program.spares
    if not spares or wanted.image is None:
        return None
    if spares[-1].store and spares[-1].image is wanted.image:  # the usual case
        return spares.pop()
    spares[:] = [shell for shell in spares if shell.store]
    same = (shell for shell in reversed(spares) if shell.image is wanted.image)
    found = next(same, None) or next(
        (shell for shell in spares if shell.suits(wanted.size, wanted.mappings)), None
    )
    if found is not None:
        spares.remove(found)
    return found


def _copy(guest: Instance, runs: Runs) -> bool:
    """Copies the first contents of changed pages, if none is in a mapping. Returns whether it did."""
    image = guest.base_image
    assert image is not None
    if own_runs(guest.base, guest.mappings, runs) != runs:
        return False
    for address, length in runs:
        at = address - guest.base
        stored = max(0, min(length, image.nbytes - at))
        if stored and os.preadv(image.file.fd, [guest.view[at : at + stored]], at) != stored:
            return False
        if stored < length:
            ctypes.memset(address + stored, 0, length - stored)
    return True


def _drop(runs: Runs) -> bool:
    """Drops pages, so that the kernel reads them from the snapshot again. Returns whether it did."""
    joined = _joined(runs)
    return not any(_libc.madvise(start, end - start, mmap.MADV_DONTNEED) for start, end in joined)


def _populate(guest: Instance) -> None:
    """Maps all pages of the files in a guest's memory. It only saves time: kernels before 5.14 may refuse."""
    for mapping in guest.mappings:
        _libc.madvise(guest.base + mapping.address, mapping.nbytes, _MADV_POPULATE_READ)


def _joined(runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Joins runs (address, bytes) that are close to each other; returns (start, end)."""
    joined: list[tuple[int, int]] = []
    start = end = 0
    for address, length in runs:
        if address - end > _GAP:
            joined += [(start, end)] if end else []
            start = address
        end = address + length
    return [*joined, (start, end)] if end else joined


def _is_like(guest: Instance, origin: Snapshot) -> bool:
    """Returns whether nothing but pages and globals distinguishes a guest from a new one."""
    if guest.failed or not guest.program.restarts or guest.program.instance_bytes > _MAX_KEPT:
        return False
    if guest.base_image is not origin.image or guest.mappings is not origin.mappings:
        return False
    guest.refresh()
    return guest.size == origin.size and not guest.keeps_exceptions()
