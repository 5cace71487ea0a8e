"""Slots of ended sequences that are kept, so that sequences which begin like them start from a copy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aicirt.contract.errors import SpaceError

if TYPE_CHECKING:
    from pyaici.engines.hf.cache import Slot, SlotCache


def shared_length(a: Sequence[int], b: Sequence[int]) -> int:
    """How many first tokens two lists have in common."""
    low, high = 0, min(len(a), len(b))
    # comparing slices is some hundred times as fast as a loop: halve what may still differ
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


@dataclass(frozen=True, eq=False, slots=True)
class Cached:
    """A slot and the tokens that it holds: the first ``slot.length`` of `tokens`."""

    tokens: Sequence[int]
    slot: Slot

    def shares(self, tokens: Sequence[int]) -> int:
        """How many first tokens of `tokens` the slot holds."""
        return min(self.slot.length, shared_length(self.tokens, tokens))


class PrefixCache:
    """Gives out the slots of sequences and takes them back; up to `keep` ended ones stay, oldest go first."""

    def __init__(self, cache: SlotCache, keep: int) -> None:
        self._cache = cache
        self._keep = keep
        #: least recently used first
        self._kept: list[Cached] = []
        #: how often all that was kept has been given up: what slots held before cannot be relied on
        self.cleared = 0

    @property
    def enabled(self) -> bool:
        """Whether anything is kept, and beginnings are shared."""
        return self._keep > 0

    def find(self, tokens: list[int], others: Iterable[Cached]) -> tuple[Cached | None, int]:
        """Returns the slot that holds most of the beginning of `tokens`, and how many of them."""
        best: Cached | None = None
        length = 0
        if self.enabled:
            for cached in (*others, *self._kept):
                if (shared := cached.shares(tokens)) > length:
                    best, length = cached, shared
        return best, length

    def start(self, tokens: list[int], others: Iterable[Cached]) -> Slot:
        """A slot that holds as much of `tokens` as a kept slot or one of `others` does.

        Never all of them: the last token has to be fed, for its logits. The caller feeds the rest,
        from ``slot.length`` on. Raises SpaceError.
        """
        best, length = self.find(tokens[:-1], others)
        if best in self._kept:
            self._kept.remove(best)
            if length == best.slot.length:
                return best.slot  # nothing in it is lost
            self._kept.append(best)
        self.reserve(1, 0)
        slot = self._cache.new_slot()
        if best is not None and best.slot.placed:  # it may have had to make room
            self._cache.copy(best.slot, slot, length)
        return slot

    def fork(self, slot: Slot) -> Slot:
        """A new slot with the same contents. Raises SpaceError."""
        self.reserve(1, 0)
        return self._cache.fork(slot)

    def reserve(self, more: int, tokens: int) -> None:
        """Makes room for so many more slots, and for so many tokens in each; what is kept goes for that.

        Raises SpaceError if it cannot be had even so.
        """
        while True:
            try:
                self._cache.reserve(len(self._cache.slots) + more, tokens)
                return
            except SpaceError:
                if not self._kept:
                    raise
                self._drop(self._kept[0])

    def end(self, tokens: Sequence[int], slot: Slot) -> None:
        """The sequence with these tokens needs its slot no more: keeps it, or frees it."""
        if slot.length == 0:
            self._cache.free(slot)
            return
        new = Cached(list(tokens[: slot.length]), slot)
        for old in self._kept:
            if old.shares(new.tokens) == slot.length:
                # another one holds all this already
                self._kept.remove(old)
                self._kept.append(old)
                self._cache.free(slot)
                return
        if self.enabled:
            self._cache.trim(slot)
            for old in [old for old in self._kept if new.shares(old.tokens) == old.slot.length]:
                self._drop(old)
            self._kept.append(new)
            if len(self._kept) > self._keep:
                self._drop(self._kept[0])
        else:
            self._cache.free(slot)

    def clear(self) -> None:
        """Frees all that is kept."""
        self.cleared += 1
        while self._kept:
            self._drop(self._kept[-1])

    def _drop(self, cached: Cached) -> None:
        self._kept.remove(cached)
        self._cache.free(cached.slot)
