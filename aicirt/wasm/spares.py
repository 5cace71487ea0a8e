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
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

from aicirt.contract.errors import RuntimeFailure
from aicirt.wasm import raw
from aicirt.wasm.snapshot import own_runs, replace_memory, same_mappings

if TYPE_CHECKING:
    from aicirt.wasm.instance import Instance
    from aicirt.wasm.snapshot import Image, Runs, Snapshot

#: the most memory that is dropped, as unmapping costs less than dropping more; and the most bytes of tables
#: and functions that a spare guest may keep
_MOST_CHANGED, _MOST_KEPT = 1 << 20, 256 << 10
#: the most memory that is copied: a spare guest keeps it, and it counts for the next guest from its start on.
#: More for a reserved one
_MOST_COPIED, _MOST_RESERVED = 128 << 10, 512 << 10
#: bytes between two changed pages up to which those between them are dropped, too: one call of the kernel
#: costs as much as mapping so many again
_GAP = 128 << 10

#: of <linux/mman.h>; mmap has no name for it
_MADV_POPULATE_READ = 22

_libc = ctypes.PyDLL(None)
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Shell:
    """A spare guest's store in wasmtime; it is freed when the shell is closed or garbage-collected."""

    __slots__ = (
        "__weakref__",
        "_base",
        "_image",
        "_mappings",
        "_size",
        "nbytes",
        "parts",
        "reserved",
        "store",
    )

    def __init__(self, guest: Instance, state: Snapshot, *, reserved: bool) -> None:
        """`guest` has the memory of `state`, and is over."""
        #: only for guests of the same snapshot, as long as that exists
        self.reserved = reserved
        assert state.image is not None
        me = weakref.ref(self)

        def forget(_: weakref.ref[Image]) -> None:
            if (shell := me()) is not None and shell.store:
                shell._forget()

        #: None once the image is no longer needed otherwise: a spare guest must not keep it
        self._image: weakref.ref[Image] | None = weakref.ref(state.image, forget)
        self._base, self._mappings, self._size = guest.base, state.mappings, state.size
        #: bytes at the beginning of the memory that may not be zero
        self.nbytes = state.image.nbytes
        self.parts: tuple[Any, ...]
        self.store, self.parts = guest.part()

    @property
    def image(self) -> Image | None:
        """The contents of the memory; None = zeros."""
        return self._image() if self._image else None

    def suits(self, wanted: Snapshot) -> bool:
        """Returns whether nothing but memory around the mappings differs from the memory of a snapshot."""
        return (
            not self.reserved and self._size <= wanted.size and same_mappings(self._mappings, wanted.mappings)
        )

    def _forget(self) -> None:
        try:
            replace_memory(self._base, self.nbytes, self._mappings, None)
        except RuntimeFailure:
            self.close()
        self._image, self.nbytes, self.reserved = None, 0, False

    def close(self) -> None:
        """Frees the guest unless it is in use again. Idempotent."""
        if self.store:
            store, self.store, self.parts = self.store, 0, ()
            raw.store_delete(store)

    def __del__(self) -> None:
        self.close()


class Spares:
    """The spare guests of an engine. Each belongs to its program and is freed with it."""

    __slots__ = ("_kept", "limit")

    def __init__(self) -> None:
        #: the most spare guests; beyond that, the oldest are freed
        self.limit = 0
        #: spare guests, and those that are in use again or have been freed; the oldest first
        self._kept: deque[weakref.ref[Shell]] = deque()

    def keep(
        self, guest: Instance, origin: Snapshot, runs: Runs | None = None, *, reserved: bool = False
    ) -> bool:
        """Makes a spare guest of one that has ended, if it can have the memory of `origin`.

        Otherwise, the caller must free the guest. `runs`: its changed pages; None = not known. `reserved`:
        later guests of the same snapshot get it, one at a time.
        """
        if not self.limit or not _is_like(guest, origin):
            return False
        if runs is None:
            runs = guest.engine.changes.changed(guest.base, guest.base + guest.size)
        nbytes = sum(length for _, length in runs)
        if nbytes > _MOST_CHANGED:
            return False
        copied = nbytes <= (_MOST_RESERVED if reserved else _MOST_COPIED) and _copy(guest, runs)
        if not copied and not _drop(runs):
            return False
        if not guest.again:
            _populate(guest)
        shell = Shell(guest, origin, reserved=reserved)
        origin.program.spares.append(shell)
        self._kept.append(weakref.ref(shell))
        self._free_beyond(self.limit)
        return True

    def clear(self) -> None:
        """Frees all spare guests, which keep the vocabularies that they have."""
        self._free_beyond(0)

    def _free_beyond(self, limit: int) -> None:
        while len(self._kept) > limit:
            if (oldest := self._kept.popleft()()) is not None:
                oldest.close()


def take(wanted: Snapshot) -> Shell | None:
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
    found = next(same, None) or next((shell for shell in spares if shell.suits(wanted)), None)
    if found is not None:
        spares.remove(found)
    return found


def _copy(guest: Instance, runs: Runs) -> bool:
    """Copies the first contents of changed pages, if none is in a mapping. Returns whether it did."""
    image = guest.base_image
    assert image is not None
    if own_runs(guest, runs) != runs:
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
    if guest.failed or not guest.program.restarts or guest.program.instance_bytes > _MOST_KEPT:
        return False
    if origin.image is None or guest.base_image is not origin.image or guest.mappings is not origin.mappings:
        return False
    guest.refresh()
    return guest.size == origin.size and not guest.keeps_exceptions()
