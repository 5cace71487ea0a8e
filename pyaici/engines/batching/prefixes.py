"""Keeps the cache slots of ended sequences, so that sequences with the same beginning reuse them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from aicirt.contract.errors import SpaceError
from aicirt.contract.owners import to_evict
from pyaici.engines.record import shared_length

if TYPE_CHECKING:
    from pyaici.engines.batching.model import KeyValueCache, Slot

T = TypeVar("T")


@dataclass(frozen=True, eq=False, slots=True)
class Cached:
    """A slot and the tokens that it holds: the first ``slot.length`` of `tokens`."""

    tokens: Sequence[int]
    slot: Slot
    #: the owner of the ended sequence, or of the last one that has used the slot
    owner: str | None = None

    def shares(self, tokens: Sequence[int]) -> int:
        """Returns how many first tokens of `tokens` the slot holds."""
        return min(self.slot.length, shared_length(self.tokens, tokens))


class PrefixCache:
    """Allocates and frees the slots of sequences.

    Keeps the slots of up to `keep` ended sequences, which have up to `keep_tokens` tokens together; the least
    recently used of the owner with the most go first.
    """

    def __init__(self, cache: KeyValueCache, keep: int, keep_tokens: int | None = None) -> None:
        self._cache = cache
        self._keep = keep
        self._keep_tokens = sys.maxsize if keep_tokens is None else keep_tokens
        #: least recently used first
        self._kept: list[Cached] = []
        #: number of calls of `clear`; contents of slots from before the last call cannot be relied on
        self.cleared = 0

    @property
    def enabled(self) -> bool:
        """Whether slots are kept and beginnings are shared."""
        return self._keep > 0

    def find(self, tokens: list[int], others: Iterable[Cached]) -> tuple[Cached | None, int]:
        """Returns the slot that holds the longest beginning of `tokens`, and the length of that beginning."""
        best: Cached | None = None
        length = 0
        if self.enabled:
            for cached in (*others, *self._kept):
                if (shared := cached.shares(tokens)) > length:
                    best, length = cached, shared
                    if length == len(tokens):  # comparing with others takes time
                        break
        return best, length

    def start(self, tokens: list[int], others: Iterable[Cached]) -> Slot:
        """Returns a slot with the longest beginning of `tokens` that a kept slot or one of `others` holds.

        The slot never holds the last token, which must be fed for its logits. The caller feeds the rest, from
        ``slot.length`` on. Raises SpaceError.
        """
        best, length = self.find(tokens[:-1], others)
        if best in self._kept:
            self._kept.remove(best)
            if length == best.slot.length:  # all of its contents are used: no copy is needed
                return self._resume(best.slot)
            self._kept.append(best)
        slot = self._with_room(self._cache.new_slot)
        if best is not None:
            source = best.slot  # if making room drops it, it has no tokens
            self._with_room(lambda: self._cache.copy(source, slot, min(length, source.length)))
        return slot

    def _resume(self, slot: Slot) -> Slot:
        try:
            self._with_room(lambda: self._cache.resume(slot))
        except SpaceError:
            self._cache.free(slot)
            raise
        return slot

    def fork(self, slot: Slot) -> Slot:
        """Returns a new slot with the same contents. Raises SpaceError."""
        return self._with_room(lambda: self._cache.fork(slot))

    def extend(self, slot: Slot, tokens: int) -> None:
        """Makes room for `tokens` tokens in a slot. Drops kept slots if necessary.

        Raises SpaceError if there is no room even without kept slots.
        """
        self._with_room(lambda: self._cache.extend(slot, tokens))

    def _with_room(self, attempt: Callable[[], T]) -> T:
        """Returns the result of `attempt`. Drops kept slots until it finds room."""
        while True:
            try:
                return attempt()
            except SpaceError:
                if not self._kept:
                    raise
                self._drop_one(by_tokens=True)

    def end(self, tokens: Sequence[int], slot: Slot, owner: str | None = None) -> None:
        """Keeps or frees the slot of an ended sequence of an owner with these tokens."""
        if not self.enabled or not 0 < slot.length <= self._keep_tokens:
            self._cache.free(slot)
            return
        new = Cached(list(tokens[: slot.length]), slot, owner)
        for old in self._kept:
            if old.shares(new.tokens) == slot.length:
                # another kept slot already holds all of these tokens
                self._kept.remove(old)
                self._kept.append(old)
                self._cache.free(slot)
                return
        for old in [old for old in self._kept if new.shares(old.tokens) == old.slot.length]:
            self._drop(old)
        try:
            self._with_room(lambda: self._cache.park(slot))
        except SpaceError:
            self._cache.free(slot)
            return
        self._kept.append(new)
        while (many := len(self._kept) > self._keep) or self.kept_tokens > self._keep_tokens:
            self._drop_one(by_tokens=not many)

    @property
    def kept_tokens(self) -> int:
        """The tokens of all kept prefixes; may be read from any thread."""
        return sum(cached.slot.length for cached in list(self._kept))

    def clear(self) -> None:
        """Frees all kept slots."""
        self.cleared += 1
        while self._kept:
            self._drop(self._kept[-1])

    def _drop_one(self, *, by_tokens: bool) -> None:
        """Drops the oldest slot of the owner with the most slots, or with the most tokens."""
        kept = self._kept
        self._drop(to_evict((one, one.owner, one.slot.length if by_tokens else 1) for one in kept))

    def _drop(self, cached: Cached) -> None:
        self._kept.remove(cached)
        self._cache.free(cached.slot)
