"""The key-value cache of llama.cpp: sequences that share cells, and a count of the free ones.

A cell holds the keys and values of one token at one position, for one or more sequences. Forks and kept
prefixes share cells, so they cost neither memory nor time. The library cannot tell how many cells are free.
So this module gives each cell a number of its own and counts its sequences.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from aicirt.contract.errors import SpaceError
from pyaici.engines.batching.model import Slot

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyaici.engines.llama.library import Library


@dataclass(eq=False, slots=True)
class LlamaSlot(Slot):
    """A slot whose `index` is the number of its first sequence in the library; see `SequenceCache`."""

    #: the numbers of its cells; those beyond `used` are reserved for tokens to come
    cells: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))


class SequenceCache:
    """The sequences of one context; see `KeyValueCache`."""

    def __init__(
        self, library: Library, context: int, num_cells: int, num_sequences: int, *, doubled: bool = False
    ) -> None:
        """`context`: of the library, with one pool of `num_cells` cells for `num_sequences` sequences.

        `doubled`: each slot takes two sequences of the library, which always hold the same cells. The library
        reuses a cell that has left the window of a layer if only one sequence holds it. Shortening a slot,
        or copying its beginning, may need the cell again.
        """
        self._library = library
        #: the library's cache; None after `close`
        self._memory: int | None = library.get_memory(context)
        self.num_cells = num_cells
        if doubled:
            num_sequences //= 2
        self.num_sequences = num_sequences
        #: a slot's sequences of the library have its index plus these numbers
        self.copies = (0, num_sequences) if doubled else (0,)
        #: numbers that no slot has
        self._numbers = list(range(num_sequences))[::-1]
        #: numbers of free cells: the first `free_cells` entries
        self._free = np.arange(num_cells, dtype=np.int32)
        self.free_cells = num_cells
        #: how many slots each cell belongs to
        self._owners = np.zeros(num_cells, np.int32)
        self.slots: list[LlamaSlot] = []

    def new_slot(self) -> LlamaSlot:
        """Returns an empty slot. Raises SpaceError."""
        if not self._numbers:
            raise SpaceError(f"all {self.num_sequences} sequences of the engine are in use")
        slot = LlamaSlot(self._numbers.pop())
        self.slots.append(slot)
        return slot

    def extend(self, slot: Slot, tokens: int) -> None:
        """Reserves cells for `tokens` tokens in the slot, those that it holds included. Raises SpaceError."""
        assert isinstance(slot, LlamaSlot)
        if slot.used > slot.length:
            self.trim(slot)
        missing = tokens - len(slot.cells)
        if missing <= 0:
            return
        if missing > self.free_cells:
            raise SpaceError(
                f"the key-value cache, which is limited to {self.num_cells} tokens, has no room for "
                f"{missing} more"
            )
        self.free_cells -= missing
        new = self._free[self.free_cells : self.free_cells + missing]
        self._owners[new] = 1
        slot.cells = np.concatenate([slot.cells, new])

    def fork(self, slot: Slot) -> LlamaSlot:
        """Returns a new slot with the same contents. Raises SpaceError."""
        copy = self.new_slot()
        self.copy(slot, copy)
        return copy

    def copy(self, source: Slot, target: Slot, length: int | None = None) -> None:
        """See `KeyValueCache.copy`. The slots share the cells."""
        assert isinstance(source, LlamaSlot) and isinstance(target, LlamaSlot)
        start, end = target.length, source.length if length is None else length
        if end <= start:
            return
        self.trim(target)
        for number in self.copies:
            self._library.memory_seq_cp(self._memory, source.index, target.index + number, start, end)
        shared = source.cells[start:end]
        self._owners[shared] += 1
        target.cells = np.concatenate([target.cells, shared])
        target.length = target.used = end

    def park(self, slot: Slot) -> None:
        """Gives up reserved cells. A slot's own cells are the least memory that it can take."""
        self.trim(slot)

    def resume(self, slot: Slot) -> None:
        """Does nothing: see `park`."""

    def trim(self, slot: Slot) -> None:
        """Gives up the tokens beyond the slot's length, and what is reserved."""
        assert isinstance(slot, LlamaSlot)
        if slot.used > slot.length:
            if self._memory is not None:
                for number in self.copies:
                    self._library.memory_seq_rm(self._memory, slot.index + number, slot.length, -1)
            slot.used = slot.length
        released = slot.cells[slot.length :]
        if not len(released):
            return
        slot.cells = slot.cells[: slot.length].copy()
        self._owners[released] -= 1
        freed = released[self._owners[released] == 0]
        self._free[self.free_cells : self.free_cells + len(freed)] = freed
        self.free_cells += len(freed)

    def close(self) -> None:
        """Calls the library no more: its context is about to be freed."""
        self._memory = None

    def free(self, slot: Slot) -> None:
        """Frees the slot."""
        assert isinstance(slot, LlamaSlot)
        slot.length = 0
        slot.used = max(slot.used, 1)  # also what a failed pass may have left
        self.trim(slot)
        self._numbers.append(slot.index)
        self.slots.remove(slot)
        slot.index = -1
