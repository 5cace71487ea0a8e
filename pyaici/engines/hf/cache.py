"""The key-value cache: one slot per sequence, and how much room requests may claim."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from aicirt.contract.errors import SpaceError
from aicirt.system.resources import free_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence


#: Room for a first short conversation; both sides double when they are too small, as far as they may.
FIRST_SLOTS = 4
FIRST_TOKENS = 256
#: The least that the limit may be: what a cache is made with.
MIN_TOKENS = FIRST_SLOTS * FIRST_TOKENS


@dataclass(eq=False, slots=True)
class Slot:
    """The place of a sequence. `index` changes when the cache moves it; `length` is its valid tokens."""

    index: int = -1
    length: int = 0
    #: positions that may hold anything but zeros
    used: int = 0

    @property
    def placed(self) -> bool:
        """Whether it is in a cache: not before it has been given out, nor after it has been freed."""
        return self.index >= 0


@dataclass(frozen=True, slots=True)
class Placement:
    """Places of the rows of a forward pass in the cache, in the order of the batch.

    The pass has queries [B, Q]; row b's real ones are the last `counts[b]`.
    """

    #: a slice if the slots are neighbours, else their indices, int64 [B]
    slots: slice | torch.Tensor
    #: keys that attention sees: the largest length after the pass
    num_keys: int
    #: (first position, number of queries) if it is the same for every row
    common: tuple[int, int] | None
    #: else for each new token its batch row, query, slot and position, int64 [N] each
    scatter: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor] | None


class SlotLayer(CacheLayerMixin):  # type: ignore[misc,no-untyped-call,unused-ignore]
    """Keys and values of one layer; tensors are made at its first use."""

    is_sliding = False

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, cache: SlotCache) -> None:
        super().__init__()  # type: ignore[no-untyped-call,unused-ignore]
        self._cache = cache

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Makes the tensors, with the heads, head size, dtype and device of these states."""
        self.keys = _room(key_states, self._cache.num_slots, self._cache.capacity)
        self.values = _room(value_states, self._cache.num_slots, self._cache.capacity)
        self.is_initialized = True

    def resize(self, slots: int, capacity: int) -> None:
        """Moves what there is into tensors of another size. Raises what torch raises if memory is short.

        Then one of the tensors, or both, have the size that they had.
        """
        for name in ("keys", "values"):
            old = getattr(self, name)
            if (old.shape[0], old.shape[2]) == (slots, capacity):
                continue  # of an attempt that found no memory for another layer
            new = _room(old, slots, capacity)
            new[: old.shape[0], :, : old.shape[2]] = old[:slots, :, :capacity]
            setattr(self, name, new)

    @property
    def size(self) -> tuple[int, int]:
        """Slots and tokens of each that both tensors have."""
        stores = (self.keys, self.values)
        return min(store.shape[0] for store in stores), min(store.shape[2] for store in stores)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Stores states [B, heads, Q, head_dim] as the placement says.

        Returns all keys and values of these rows, [B, heads, num_keys, head_dim].
        """
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        place = self._cache.placement
        assert place is not None, "set SlotCache.placement before a forward pass"
        for store, states in ((self.keys, key_states), (self.values, value_states)):
            if place.common is not None:
                first, count = place.common
                store[place.slots, :, first : first + count] = states
            else:
                assert place.scatter is not None
                row, query, slot, position = place.scatter
                store[slot, :, position] = states[row, :, query]
        return self.keys[place.slots, :, : place.num_keys], self.values[place.slots, :, : place.num_keys]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """(keys, offset) of a mask; the engine passes masks of its own, so only the size is real."""
        place = self._cache.placement
        return (query_length if place is None else place.num_keys), 0

    def get_seq_length(self) -> int:
        """The longest sequence."""
        return max((slot.length for slot in self._cache.slots), default=0)

    def get_max_length(self) -> int:
        """No limit: it grows."""
        return -1


def _room(like: torch.Tensor, slots: int, capacity: int) -> torch.Tensor:
    """Zeros, not garbage: attention multiplies what it does not see by 0, and 0 times NaN is NaN."""
    return like.new_zeros((slots, like.shape[1], capacity, like.shape[3]))


class SlotCache(Cache):  # type: ignore[misc,unused-ignore]
    """The cache of all live sequences of one engine.

    What raises SpaceError has changed nothing: there is no memory, or no room within the limit.
    """

    layers: list[SlotLayer]  # type: ignore[assignment,unused-ignore]

    def __init__(self, num_layers: int, num_slots: int = FIRST_SLOTS, capacity: int = FIRST_TOKENS) -> None:
        #: what every layer has, or is made with
        self.num_slots = num_slots
        self.capacity = capacity
        #: most tokens that it may grow to, `num_slots` times `capacity`; None = as memory allows
        self.limit: int | None = None
        #: live slots; ``slots[i].index == i``
        self.slots: list[Slot] = []
        #: set before each forward pass
        self.placement: Placement | None = None
        super().__init__(layers=[SlotLayer(self) for _ in range(num_layers)])

    def new_slot(self) -> Slot:
        """An empty slot. Raises SpaceError."""
        self.reserve(len(self.slots) + 1, 0)
        slot = Slot(len(self.slots))
        self.slots.append(slot)
        return slot

    def free(self, slot: Slot) -> None:
        """Gives the slot back; the last slot moves into the hole."""
        last = self.slots[-1]
        if last is not slot:
            self._swap(slot, last)
        self.slots.pop()
        slot.length = 0
        self.trim(slot)
        slot.index = -1

    def trim(self, slot: Slot) -> None:
        """Erases what lies beyond the slot's tokens."""
        for layer in self._ready_layers():
            # a sequence that overflowed must not leave infinities to the next one
            layer.keys[slot.index, :, slot.length : slot.used] = 0
            layer.values[slot.index, :, slot.length : slot.used] = 0
        slot.used = slot.length

    def fork(self, slot: Slot) -> Slot:
        """A new slot with the same contents. Raises SpaceError."""
        copy = self.new_slot()
        self.copy(slot, copy)
        return copy

    def copy(self, source: Slot, target: Slot, length: int | None = None) -> None:
        """Makes `target`, which holds the beginning of `source`, equal to it; copies what is missing.

        With a `length`, equal to the first so many tokens of it.
        """
        start, end = target.length, source.length if length is None else length
        if end > start:
            for layer in self._ready_layers():
                for store in (layer.keys, layer.values):
                    store[target.index, :, start:end] = store[source.index, :, start:end]
        target.length = end
        target.used = max(target.used, end)

    def place(self, slots: Sequence[Slot], counts: Sequence[int], device: torch.device) -> Placement:
        """Reserves room for `counts[b]` more tokens in ``slots[b]`` and returns where a pass must put them.

        The pass pads its queries on the left. Lengths are for the caller to change, once it has succeeded.
        Raises SpaceError.
        """
        ends = [slot.length + count for slot, count in zip(slots, counts, strict=True)]
        self.reserve(0, max(ends))
        for slot, end in zip(slots, ends, strict=True):
            slot.used = max(slot.used, end)
        indices = [slot.index for slot in slots]
        start = indices[0]
        together = indices == list(range(start, start + len(indices)))
        where = slice(start, start + len(indices)) if together else torch.tensor(indices, device=device)
        same = len({slot.length for slot in slots}) == 1 and len(set(counts)) == 1
        if same and together:
            return Placement(where, max(ends), (slots[0].length, counts[0]), None)
        width = max(counts)
        entries = [
            (row, width - count + i, slot.index, slot.length + i)
            for row, (slot, count) in enumerate(zip(slots, counts, strict=True))
            for i in range(count)
        ]
        scatter = torch.tensor(entries, device=device).unbind(1)
        return Placement(where, max(ends), None, (scatter[0], scatter[1], scatter[2], scatter[3]))

    def gather(self, slots: Sequence[Slot]) -> None:
        """Makes these slots neighbours, so that a batch of them is a slice; moves to the front if need be."""
        indices = sorted(slot.index for slot in slots)
        if indices[-1] - indices[0] + 1 == len(indices):
            return
        chosen = set(map(id, slots))
        misplaced = [slot for slot in self.slots[: len(slots)] if id(slot) not in chosen]
        strays = [slot for slot in self.slots[len(slots) :] if id(slot) in chosen]
        for outsider, stray in zip(misplaced, strays, strict=True):
            self._swap(outsider, stray)

    def _swap(self, a: Slot, b: Slot) -> None:
        used = max(a.used, b.used)
        for layer in self._ready_layers():
            for store in (layer.keys, layer.values):
                kept = store[a.index, :, :used].clone()
                store[a.index, :, :used] = store[b.index, :, :used]
                store[b.index, :, :used] = kept
        a.index, b.index = b.index, a.index
        self.slots[a.index], self.slots[b.index] = a, b

    def _ready_layers(self) -> list[SlotLayer]:
        return [layer for layer in self.layers if layer.is_initialized]

    @property
    def token_bytes(self) -> int:
        """Memory of one token in all layers that have been used."""
        stores = [store for layer in self._ready_layers() for store in (layer.keys, layer.values)]
        return sum(store.shape[1] * store.shape[3] * store.element_size() for store in stores)

    def reserve(self, slots: int, tokens: int) -> None:
        """Makes room for so many slots in all, of so many tokens each. Raises SpaceError."""
        if slots <= self.num_slots and tokens <= self.capacity:
            return
        size = self._grown(max(slots, len(self.slots)), max(1, tokens, self.get_seq_length()))
        layers = self._ready_layers()
        try:
            for layer in layers:
                layer.resize(*size)
        except (MemoryError, RuntimeError) as error:
            if not _memory_is_short(error):
                raise
            raise SpaceError(
                f"there is no memory for a key-value cache of {size[0]} sequences of {size[1]} tokens"
            ) from error
        finally:
            # one layer after the other, so that two copies are there of one layer only; if some have not been
            # resized, all have what the smallest has
            sizes = [layer.size for layer in layers] or [size]
            self.num_slots, self.capacity = (min(side) for side in zip(*sizes, strict=True))
            for slot in self.slots:
                slot.used = min(slot.used, self.capacity)

    def _grown(self, slots: int, tokens: int) -> tuple[int, int]:
        """A size with room for what is needed, and more. Raises SpaceError if that is beyond the limit."""
        num_slots, capacity = self.num_slots, self.capacity
        while num_slots < slots:
            num_slots *= 2
        while capacity < tokens:
            capacity *= 2
        if self.limit is None or num_slots * capacity <= self.limit:
            return num_slots, capacity
        if slots * tokens > self.limit:
            raise SpaceError(
                f"{slots} sequences of up to {tokens} tokens do not fit into the key-value cache, which may "
                f"have {self.limit} tokens"
            )
        # one side grows at the other one's cost
        num_slots = slots if tokens > self.capacity else min(num_slots, self.limit // tokens)
        return num_slots, min(capacity, self.limit // num_slots)


def _memory_is_short(error: Exception) -> bool:
    """Torch has a type of its own for devices; on the CPU it says so in words."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "alloc" in str(error).lower()


#: The share of the free memory that the cache may take. The rest is for passes over long prompts, and on the
#: CPU for all other programs, which take more of it later.
SHARE = {"cpu": 0.5, "cuda": 0.8}


def cache_limit(asked: int | Literal["auto"] | None, device: torch.device, token_bytes: int) -> int | None:
    """Most tokens of a cache whose tokens take so many bytes each, on this device; None = no limit.

    "auto" is as many as there is memory for now. Raises ValueError for a number below `MIN_TOKENS`.
    """
    if asked is None:
        return None
    if asked == "auto":
        free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else free_bytes()
        share = SHARE.get(device.type, SHARE["cpu"])
        return max(MIN_TOKENS, int(free * share) // max(1, token_bytes))
    if asked < MIN_TOKENS:
        raise ValueError(f"cache_tokens is {asked}; it must be at least {MIN_TOKENS}")
    return asked


@dataclass(eq=False, slots=True)
class Claim:
    """The most that a request may need: so many sequences at the same time, of so many tokens each."""

    sequences: int
    tokens: int


class Budget:
    """Tokens of the cache that are spoken for.

    The cache has room for each sequence as for the longest (see `SlotCache`), so that claims together cost
    the number of their sequences times the tokens of the largest.
    """

    def __init__(self, limit: int | None) -> None:
        """`limit`: most tokens of the cache; None = any number."""
        self.limit = limit
        self._claims: list[Claim] = []

    def check(self, sequences: int, tokens: int) -> None:
        """Raises ValueError for what there can never be room for."""
        if self.limit is not None and sequences * tokens > self.limit:
            raise ValueError(
                f"the key-value cache may have {self.limit} tokens: {sequences} sequences of up to {tokens} "
                "do not fit; ask for fewer (a search needs two for each beam), or lower max_tokens"
            )

    def claim(self, sequences: int, tokens: int) -> Claim | None:
        """Room for sequences of so many tokens; None if there is not so much now."""
        if not self._fits(sequences, tokens):
            return None
        claim = Claim(sequences, tokens)
        self._claims.append(claim)
        return claim

    def widen(self, claim: Claim, sequences: int) -> bool:
        """Extends a claim to so many sequences; returns whether there is room for them."""
        more = sequences - claim.sequences
        if more > 0:
            if not self._fits(more, claim.tokens):
                return False
            claim.sequences = sequences
        return True

    def release(self, claim: Claim) -> None:
        """Gives back a claim whose sequences have ended."""
        self._claims.remove(claim)

    def _fits(self, sequences: int, tokens: int) -> bool:
        if self.limit is None:
            return True
        number = sequences + sum(claim.sequences for claim in self._claims)
        longest = max([tokens, *(claim.tokens for claim in self._claims)])
        return number * longest <= self.limit
