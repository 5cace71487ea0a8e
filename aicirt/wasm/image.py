"""Contents of memory that outlive a guest: images that guests share, and shells for later guests."""

from __future__ import annotations

import os
import weakref
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from aicirt.contract.errors import RuntimeFailure
from aicirt.settings import WASM_PAGE
from aicirt.system.files import Descriptor
from aicirt.wasm import raw
from aicirt.wasm.memory import map_private, map_zeros

Runs = list[tuple[int, int]]


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Image:
    """Contents of a memory from address 0 on; immutable, and shared by all guests that start from it."""

    file: Descriptor
    nbytes: int
    #: (offset, bytes) of the pages in the file; all others are zero
    runs: Runs
    #: bytes of those pages
    stored: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "stored", sum(length for _, length in self.runs))


@dataclass(frozen=True, slots=True)
class Mapping:
    """A shared read-only file in guest memory."""

    file: Descriptor
    address: int
    nbytes: int

    @property
    def pages(self) -> int:
        """Wasm pages that the mapping occupies."""
        return -(-self.nbytes // WASM_PAGE)


def replace_memory(base: int, nbytes: int, mappings: tuple[Mapping, ...], image: Image | None) -> None:
    """Replaces memory, but not the mappings, by the contents of `image`, and by zeros up to `nbytes`.

    Raises `RuntimeFailure` if the kernel refuses.
    """
    filled = image.nbytes if image else 0
    start = 0
    for mapping in (*mappings, None):
        end = mapping.address if mapping else max(filled, nbytes)
        middle = max(start, min(end, filled))
        if image and start < middle:
            map_private(base + start, middle - start, image.file.fd, start)
        if middle < min(end, nbytes):
            map_zeros(base + middle, min(end, nbytes) - middle)
        if mapping:
            start = mapping.address + mapping.pages * WASM_PAGE


def same_mappings(these: tuple[Mapping, ...], others: tuple[Mapping, ...]) -> bool:
    """Returns whether two guests have the same files at the same addresses."""
    return these is others or (
        len(these) == len(others)
        and all(
            (one.address, one.nbytes) == (other.address, other.nbytes)
            and os.path.sameopenfile(one.file.fd, other.file.fd)
            for one, other in zip(these, others, strict=True)
        )
    )


def own_runs(base: int, mappings: tuple[Mapping, ...], runs: Runs) -> Runs:
    """Returns runs (address, bytes) without the parts in mappings, where writes are not kept."""
    for mapping in mappings:
        start = base + mapping.address
        end = start + mapping.pages * WASM_PAGE
        parts = [(at, min(at + length, start)) for at, length in runs if at < start]
        parts += [(max(at, end), at + length) for at, length in runs if at + length > end]
        runs = [(at, stop - at) for at, stop in parts]
    return runs


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

    def __init__(
        self,
        store: int,
        parts: tuple[Any, ...],
        base: int,
        image: Image,
        mappings: tuple[Mapping, ...],
        size: int,
        *,
        reserved: bool,
    ) -> None:
        """`parts`: for `Instance`. The memory of `size` bytes at `base` has the contents of a snapshot."""
        self.store, self.parts = store, parts
        #: only for guests of the same snapshot, as long as that exists
        self.reserved = reserved
        me = weakref.ref(self)

        def forget(_: weakref.ref[Image]) -> None:
            if (shell := me()) is not None and shell.store:
                shell._forget()

        #: None once the image is no longer needed otherwise: a spare guest must not keep it
        self._image: weakref.ref[Image] | None = weakref.ref(image, forget)
        self._base, self._mappings, self._size = base, mappings, size
        #: bytes at the beginning of the memory that may not be zero
        self.nbytes = image.nbytes

    @property
    def image(self) -> Image | None:
        """The contents of the memory; None = zeros."""
        return self._image() if self._image else None

    def suits(self, size: int, mappings: tuple[Mapping, ...]) -> bool:
        """Returns whether nothing but memory around the mappings differs from the memory of a snapshot."""
        return not self.reserved and self._size <= size and same_mappings(self._mappings, mappings)

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

    def add(self, shell: Shell) -> None:
        """Adds a spare guest, which its program keeps."""
        self._kept.append(weakref.ref(shell))
        self._free_beyond(self.limit)

    def clear(self) -> None:
        """Frees all spare guests, which keep the vocabularies that they have."""
        self._free_beyond(0)

    def _free_beyond(self, limit: int) -> None:
        while len(self._kept) > limit:
            if (oldest := self._kept.popleft()()) is not None:
                oldest.close()
