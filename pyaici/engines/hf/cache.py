"""The key-value cache in torch tensors, with one slot per running sequence, all of the same length.

So a batch of neighbouring slots is a view, and a pass copies nothing. The tensors grow and shrink with the
running sequences. A parked slot, which no sequence uses, has tensors of its own, as long as its tokens.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from aicirt.contract.errors import SpaceError, counted
from aicirt.system.resources import free_bytes
from pyaici.engines.batching.model import Slot

if TYPE_CHECKING:
    from collections.abc import Sequence


#: Room for a first short conversation. Both dimensions double when they are too small, within the limit.
FIRST_SLOTS = 4
FIRST_TOKENS = 256
#: The smallest limit: the initial size of a cache.
MIN_TOKENS = FIRST_SLOTS * FIRST_TOKENS


@dataclass(frozen=True, slots=True)
class CachePositions:
    """Cache positions for the rows of a forward pass, in the order of the batch.

    The pass has queries [B, Q]; the real queries of row b are its last `counts[b]`, the others are padding.
    """

    #: a slice if the slots are neighbours, else their indices, int64 [B]
    slots: slice | torch.Tensor
    #: number of keys that attention sees: the largest length after the pass
    num_keys: int
    #: (first position, number of queries), if the slots are neighbours and it is the same for every row
    common: tuple[int, int] | None
    #: otherwise the batch row, query, slot and position of each new token, int64 [N] each
    scatter: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor] | None


@dataclass(eq=False, slots=True)
class HfSlot(Slot):
    """A slot of the cache: `index` is its row in the tensors."""

    #: keys and values of each layer, [heads, length, head_dim] each, while the slot is parked
    parked: list[tuple[torch.Tensor, torch.Tensor]] | None = None


class SlotLayer(CacheLayerMixin):  # type: ignore[misc,no-untyped-call,unused-ignore]
    """Keys and values of one layer. The tensors are allocated at first use."""

    is_sliding = False

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, cache: SlotCache) -> None:
        super().__init__()  # type: ignore[no-untyped-call,unused-ignore]
        self._cache = cache

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Allocates the tensors, with the heads, head size, dtype and device of these states."""
        self.keys = _room(key_states, self._cache.num_slots, self._cache.capacity)
        self.values = _room(value_states, self._cache.num_slots, self._cache.capacity)
        self.is_initialized = True

    def resize(self, slots: int, capacity: int) -> None:
        """Moves the contents into tensors of another size. Raises torch's error if memory is short.

        After an error, one or both tensors still have their old size.
        """
        for name in ("keys", "values"):
            old = getattr(self, name)
            if (old.shape[0], old.shape[2]) == (slots, capacity):
                continue  # resized by an earlier attempt, which found no memory for another tensor
            new = _room(old, slots, capacity)
            new[: old.shape[0], :, : old.shape[2]] = old[:slots, :, :capacity]
            setattr(self, name, new)

    @property
    def size(self) -> tuple[int, int]:
        """The number of slots, and of tokens per slot, that both tensors have room for."""
        stores = (self.keys, self.values)
        return min(store.shape[0] for store in stores), min(store.shape[2] for store in stores)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Stores states [B, heads, Q, head_dim] at the positions of the cache's placement.

        Returns all keys and values of these rows, [B, heads, num_keys, head_dim].
        """
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        place = self._cache.placement
        assert place is not None, "SlotCache.placement must be set before each forward pass"
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
        """Returns (number of keys, offset) of a mask. The engine passes its own masks, so the offset is 0."""
        place = self._cache.placement
        return (query_length if place is None else place.num_keys), 0

    def get_seq_length(self) -> int:
        """Returns the length of the longest sequence."""
        return max((slot.length for slot in self._cache.slots), default=0)

    def get_max_length(self) -> int:
        """Returns -1, no limit: the cache grows."""
        return -1


def _room(like: torch.Tensor, slots: int, capacity: int) -> torch.Tensor:
    """Returns zeros. Uninitialized memory may hold NaN, and attention multiplies hidden values by 0."""
    return like.new_zeros((slots, like.shape[1], capacity, like.shape[3]))


class SlotCache(Cache):  # type: ignore[misc,unused-ignore]
    """The cache of all live sequences of one engine.

    SpaceError means that there is no memory, or no room within the limit; the contents are unchanged then.
    """

    layers: list[SlotLayer]  # type: ignore[assignment,unused-ignore]

    def __init__(self, num_layers: int, num_slots: int = FIRST_SLOTS, capacity: int = FIRST_TOKENS) -> None:
        #: number of slots, and tokens per slot, that every layer has or is allocated with
        self.num_slots = num_slots
        self.capacity = capacity
        self._least = (num_slots, capacity)
        #: most tokens that the tensors may grow to, `num_slots` times `capacity`; None = as memory allows
        self.limit: int | None = None
        #: slots in the tensors; ``slots[i].index == i``
        self.slots: list[HfSlot] = []
        self.parked: list[HfSlot] = []
        #: set before each forward pass
        self.placement: CachePositions | None = None
        super().__init__(layers=[SlotLayer(self) for _ in range(num_layers)])

    def new_slot(self) -> HfSlot:
        """Returns an empty slot. Raises SpaceError."""
        self.reserve(len(self.slots) + 1, 0)
        return self._enter(HfSlot())

    def _enter(self, slot: HfSlot) -> HfSlot:
        slot.index = len(self.slots)
        self.slots.append(slot)
        return slot

    def free(self, slot: Slot) -> None:
        """Frees the slot, and memory that the others do not need."""
        assert isinstance(slot, HfSlot)
        if slot.parked is None:
            self._leave(slot)
        else:
            self.parked.remove(slot)
            slot.parked = None
        slot.length = slot.used = 0

    def _leave(self, slot: HfSlot) -> None:
        """Removes a slot from the tensors. The last slot moves into its place."""
        last = self.slots[-1]
        if last is not slot:
            self._swap(slot, last)
        self.slots.pop()
        for layer in self._ready_layers():
            # infinities of a sequence that overflowed must not reach the next one
            layer.keys[slot.index, :, : slot.used] = 0
            layer.values[slot.index, :, : slot.used] = 0
        slot.index = -1
        self._shrink()

    def park(self, slot: Slot) -> None:
        """Moves the slot's tokens into tensors of their own. Raises SpaceError."""
        assert isinstance(slot, HfSlot)
        try:
            slot.parked = [
                (keys[slot.index, :, : slot.length].clone(), values[slot.index, :, : slot.length].clone())
                for keys, values in ((layer.keys, layer.values) for layer in self._ready_layers())
            ]
        except (MemoryError, RuntimeError) as error:
            if not _memory_is_short(error):
                raise
            raise SpaceError(f"there is not enough memory to keep {slot.length} tokens") from error
        self._leave(slot)
        slot.used = slot.length
        self.parked.append(slot)

    def resume(self, slot: Slot) -> None:
        """Moves the tokens of a parked slot into the cache's tensors. Raises SpaceError."""
        assert isinstance(slot, HfSlot) and slot.parked is not None
        self.reserve(len(self.slots) + 1, slot.length)
        self._enter(slot)
        # strict=False: an empty slot may have been parked before the layers had tensors
        for layer, (keys, values) in zip(self._ready_layers(), slot.parked, strict=False):
            layer.keys[slot.index, :, : slot.length] = keys
            layer.values[slot.index, :, : slot.length] = values
        slot.parked = None
        self.parked.remove(slot)

    def extend(self, slot: Slot, tokens: int) -> None:
        """Makes room for `tokens` tokens in the slot, and so in every slot. Raises SpaceError."""
        self.reserve(0, tokens)
        slot.used = max(slot.used, tokens)

    def fork(self, slot: Slot) -> HfSlot:
        """Returns a new slot with the same contents. Raises SpaceError."""
        copy = self.new_slot()
        self.copy(slot, copy)
        return copy

    def copy(self, source: Slot, target: Slot, length: int | None = None) -> None:
        """See `KeyValueCache.copy`. Copies only the tokens that `target` lacks."""
        assert isinstance(source, HfSlot)
        start, end = target.length, source.length if length is None else length
        if end <= start:
            return
        self.extend(target, end)
        parked = source.parked
        for number, layer in enumerate(self._ready_layers()):
            here = (layer.keys, layer.values)
            there = [store[source.index] for store in here] if parked is None else parked[number]
            for store, states in zip(here, there, strict=True):
                store[target.index, :, start:end] = states[:, start:end]
        target.length = end

    def place_rows(
        self, slots: Sequence[Slot], counts: Sequence[int], device: torch.device
    ) -> CachePositions:
        """Reserves room for `counts[b]` more tokens in ``slots[b]`` and returns their positions.

        The pass pads its queries on the left. The caller updates the slots' lengths after the pass has
        succeeded. Raises SpaceError.
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
            return CachePositions(where, max(ends), (slots[0].length, counts[0]), None)
        width = max(counts)
        entries = [
            (row, width - count + i, slot.index, slot.length + i)
            for row, (slot, count) in enumerate(zip(slots, counts, strict=True))
            for i in range(count)
        ]
        scatter = torch.tensor(entries, device=device).unbind(1)
        return CachePositions(where, max(ends), None, (scatter[0], scatter[1], scatter[2], scatter[3]))

    def gather(self, slots: Sequence[Slot]) -> None:
        """Makes these slots neighbours, so that a batch of them is a slice.

        Moves them to the front if they are not neighbours already.
        """
        indices = sorted(slot.index for slot in slots)
        if indices[-1] - indices[0] + 1 == len(indices):
            return
        chosen = set(map(id, slots))
        misplaced = [slot for slot in self.slots[: len(slots)] if id(slot) not in chosen]
        strays = [slot for slot in self.slots[len(slots) :] if id(slot) in chosen]
        for outsider, stray in zip(misplaced, strays, strict=True):
            self._swap(outsider, stray)

    def _swap(self, a: HfSlot, b: HfSlot) -> None:
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
        """Bytes of one token in all layers that have been used."""
        stores = [store for layer in self._ready_layers() for store in (layer.keys, layer.values)]
        return sum(store.shape[1] * store.shape[3] * store.element_size() for store in stores)

    def reserve(self, slots: int, tokens: int) -> None:
        """Makes room for at least this many slots in total, of this many tokens each. Raises SpaceError."""
        if slots <= self.num_slots and tokens <= self.capacity:
            return
        self._resize(*self._grown(max(slots, len(self.slots)), max(1, tokens, self.get_seq_length())))

    def _shrink(self) -> None:
        """Gives memory back if the slots need at most a quarter of it, or if there are no slots."""
        slots = _doubled(self._least[0], len(self.slots))
        capacity = _doubled(self._least[1], max((slot.used for slot in self.slots), default=0))
        if (4 * slots * capacity if self.slots else slots * capacity + 1) <= self.num_slots * self.capacity:
            with contextlib.suppress(SpaceError):
                self._resize(min(slots, self.num_slots), min(capacity, self.capacity))

    def _resize(self, num_slots: int, capacity: int) -> None:
        """Moves the slots into tensors of another size. Raises SpaceError."""
        layers = self._ready_layers()
        try:
            for layer in layers:
                layer.resize(num_slots, capacity)
        except (MemoryError, RuntimeError) as error:
            if not _memory_is_short(error):
                raise
            raise SpaceError(
                f"there is not enough memory for a key-value cache of {counted(num_slots, 'sequence')} of "
                f"{capacity} tokens"
            ) from error
        finally:
            # layers are resized one at a time, so that only one tensor exists twice at any moment. If some
            # are not resized, the smallest determines the size of all
            sizes = [layer.size for layer in layers] or [(num_slots, capacity)]
            self.num_slots, self.capacity = (min(side) for side in zip(*sizes, strict=True))
            for slot in self.slots:
                slot.used = min(slot.used, self.capacity)

    def _grown(self, slots: int, tokens: int) -> tuple[int, int]:
        """Returns a size with at least the required room. Raises SpaceError if that exceeds the limit."""
        num_slots, capacity = _doubled(self.num_slots, slots), _doubled(self.capacity, tokens)
        if self.limit is None or num_slots * capacity <= self.limit:
            return num_slots, capacity
        if slots * tokens > self.limit:
            raise SpaceError(
                f"{counted(slots, 'sequence')} of up to {tokens} tokens cannot fit into the key-value cache, "
                f"which is limited to {self.limit} tokens"
            )
        # one dimension grows at the cost of the other
        num_slots = slots if tokens > self.capacity else min(num_slots, self.limit // tokens)
        return num_slots, min(capacity, self.limit // num_slots)


def _doubled(size: int, least: int) -> int:
    """Returns the size, doubled until it is at least `least`."""
    while size < least:
        size *= 2
    return size


def _memory_is_short(error: Exception) -> bool:
    """Returns whether an error means that memory is short.

    Torch has an exception class for devices; on the CPU only the message shows the cause.
    """
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "alloc" in str(error).lower()


#: The share of the free memory that running sequences may use. Kept ones use up to a quarter of that more.
#: The rest is for passes over long prompts, and on the CPU also for all other programs, which may need more
#: of it later.
SHARE = {"cpu": 0.4, "cuda": 0.64}


def cache_limit(asked: int | Literal["auto"] | None, device: torch.device, token_bytes: int) -> int | None:
    """Returns the most tokens of a cache on this device, at `token_bytes` bytes per token; None = no limit.

    `asked`: a number, None for no limit, or "auto" for as many tokens as a share of the free memory holds,
    but at least `MIN_TOKENS`. Raises ValueError for a number below `MIN_TOKENS`.
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
