"""Spare guests: ended guests whose memory stays mapped, for later guests of the same program.

Making a guest takes 0.1 ms, unmapping one as long, and the first access to each part of the vocabulary a page
fault. A spare guest gets the state of a new one:

- Pages that the ended guest has changed are dropped, so that the kernel reads them from the snapshot again.
- For another snapshot of the program, with the same vocabulary, all memory but the vocabulary is replaced.
- All mutable globals are set at the start, and tables never change.
- Only memory.init could tell whether a data segment was dropped: modules that have it have no spare guests.
"""

from __future__ import annotations

import ctypes
import mmap
import weakref
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aicirt.wasm import raw

if TYPE_CHECKING:
    from aicirt.wasm.instance import Instance
    from aicirt.wasm.snapshot import Runs, Snapshot

#: the most memory that is dropped, as unmapping costs less than dropping more; and the most bytes of tables
#: and functions that a spare guest may keep
_MOST_CHANGED, _MOST_KEPT = 1 << 20, 256 << 10
#: bytes between two changed pages up to which those between them are dropped, too: one call of the kernel
#: costs as much as mapping so many again
_GAP = 128 << 10

_libc = ctypes.PyDLL(None)
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Shell:
    """A spare guest's store in wasmtime; it is freed when the shell is closed or garbage-collected."""

    __slots__ = ("__weakref__", "parts", "state", "store")

    def __init__(self, store: int, parts: tuple[Any, ...], state: Snapshot) -> None:
        """`parts`: as `Instance.part` returns them. `state`: what the guest's memory contains."""
        self.store = store
        self.parts = parts
        #: without its spare guests, of which this is one
        self.state = replace(state, spares=[])

    def close(self) -> None:
        """Frees the guest unless it is in use again. Idempotent."""
        if self.store:
            store, self.store, self.parts = self.store, 0, ()
            raw.store_delete(store)

    def __del__(self) -> None:
        self.close()


class Spares:
    """The spare guests of an engine. Each belongs to its snapshot and is freed with it."""

    __slots__ = ("_kept", "limit")

    def __init__(self) -> None:
        #: the most spare guests; beyond that, the oldest are freed
        self.limit = 0
        #: spare guests, and those that are in use again or have been freed; the oldest first
        self._kept: deque[weakref.ref[Shell]] = deque()

    def keep(self, guest: Instance, origin: Snapshot, runs: Runs | None = None) -> bool:
        """Makes a spare guest of one that has ended, if it can have the state of `origin`.

        Otherwise, the caller must free the guest. `runs`: its changed pages; None = not known.
        """
        if not self.limit or not _is_like(guest, origin):
            return False
        if runs is None:
            runs = guest.engine.changes.changed(guest.base, guest.base + guest.size)
        if sum(length for _, length in runs) > _MOST_CHANGED:
            return False
        for start, end in _joined(runs):
            if _libc.madvise(start, end - start, mmap.MADV_DONTNEED):
                return False
        shell = Shell(*guest.part(), origin)
        origin.spares.append(shell)
        self._kept.append(weakref.ref(shell))
        while len(self._kept) > self.limit:
            if (oldest := self._kept.popleft()()) is not None:
                oldest.close()
        return True

    def take(self, wanted: Snapshot) -> Shell | None:
        """Returns a spare guest for a snapshot, which the caller must adopt; None if there is none.

        Prefers one of the same snapshot. The memory of another must be changed with `Snapshot.replace`.
        """
        while wanted.spares:
            shell = wanted.spares.pop()
            if shell.store:
                return shell
        kept = (reference() for reference in self._kept)
        others = (shell for shell in kept if shell is not None and shell.store)
        return next((shell for shell in others if wanted.can_replace(shell.state)), None)


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
