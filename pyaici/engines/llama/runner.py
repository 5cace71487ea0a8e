"""Runs forward passes of a llama.cpp model over the tokens of many sequences, and keeps their cache.

A cell of the cache holds the keys and values of one token at one position, for one or more sequences. Forks
and kept prefixes share cells, so they cost neither memory nor time. The library cannot tell how many cells
are free. So `SequenceCache` gives each cell a number of its own and counts its sequences.
"""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from aicirt.contract.errors import SpaceError
from aicirt.system.resources import free_bytes
from pyaici.engines.batching.model import Feed, LogitsRow, Slot, moving_average
from pyaici.engines.batching.sampler import NumpySampler
from pyaici.engines.llama.library import MAX_SEQUENCES, Batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pyaici.engines.llama.library import Library
    from pyaici.engines.llama.model import LlamaModel

#: The fixed cost of a forward pass, in tokens: SmolLM2-135M on one thread takes about 4 ms a pass and 10 ms a
#: token. A GPU reads all weights in the time of a few hundred tokens.
PASS_COST = {"cpu": 1, "gpu": 256}
#: most tokens of a call
_BATCH = 2048


class LlamaRunner:
    """A model with a context of its own; see `pyaici.engines.batching.model.Runner`."""

    def __init__(self, model: LlamaModel, cache_tokens: int, *, threads: int = 1) -> None:
        """`cache_tokens`: most tokens of the cache, all sequences together; allocated at once.

        `threads`: of the model's own. More than there are free processors make it slow. Raises ValueError if
        there is no memory for the cache.
        """
        library = model.library
        on_gpu = library.supports_gpu_offload()
        size = cache_tokens * model.token_bytes
        too_large = (
            f"llama.cpp cannot make a context of {cache_tokens} tokens ({size >> 20} MiB): {{}}; lower "
            "--kv-cache-tokens (in Python: cache_tokens)"
        )
        # The library would first take tens of bytes for each token, for minutes.
        if not on_gpu and size > free_bytes():
            raise ValueError(too_large.format(f"only {free_bytes() >> 20} MiB of memory are free"))
        params = library.context_default_params()
        params.n_ctx = cache_tokens
        params.n_batch = _BATCH
        params.n_seq_max = MAX_SEQUENCES
        params.n_threads = params.n_threads_batch = threads
        params.kv_unified = True  # all sequences share one pool, and forks share cells
        with library.explained() as reasons:
            self._context: int = library.init_from_model(model.pointer, params)
        if not self._context:
            raise ValueError(too_large.format("; ".join(reasons) or "it gives no reason"))
        self._library = library
        self.num_logits = self.num_tokens = model.num_tokens
        self.max_tokens = min(model.trained_context, library.n_ctx_seq(self._context))
        self.pass_cost = PASS_COST["gpu" if on_gpu else "cpu"]
        self.token_seconds = 0.0
        #: the time of a processor is the same beside other work
        self._clock = time.perf_counter if on_gpu else time.thread_time
        self.sampler = NumpySampler()
        cells, windows = library.n_ctx(self._context), library.model_n_swa(model.pointer) > 0
        self.cache = SequenceCache(library, self._context, cells, MAX_SEQUENCES, doubled=windows)
        # the arrays of a batch, which the library reads during a call
        self._token, self._position = (np.zeros(_BATCH, np.int32) for _ in range(2))
        copies = len(self.cache.copies)
        self._sequences = np.zeros((_BATCH, copies), np.int32)
        self._num_sequences = np.full(_BATCH, copies, np.int32)
        self._wanted = np.zeros(_BATCH, np.int8)
        first, size = self._sequences.ctypes.data, self._sequences.strides[0]
        self._sequences_at = first + size * np.arange(_BATCH, dtype=np.uint64)
        arrays = (self._token, None, self._position, self._num_sequences, self._sequences_at, self._wanted)
        self._batch = Batch(0, *(None if array is None else array.ctypes.data for array in arrays))

    def run(self, feeds: Sequence[Feed]) -> Sequence[LogitsRow]:
        """Appends each feed's tokens to its slot. Returns the logits after each feed's last token.

        One float32 [num_logits] per feed; for a feed with `every`, a list with one for each token. Raises
        SpaceError if the cache has no room, and RuntimeError if the library fails.
        """
        if not self._context:
            raise RuntimeError("the engine is closed")
        tokens: list[int] = []
        positions: list[int] = []
        sequences: list[int] = []
        wants: list[int] = []
        for feed in feeds:
            slot, count = feed.slot, len(feed.tokens)
            assert isinstance(slot, LlamaSlot)
            self.cache.extend(slot, slot.length + count)
            tokens += feed.tokens
            positions += range(slot.length, slot.length + count)
            sequences += [slot.index] * count
            wants += range(len(tokens) - (count if feed.every else 1), len(tokens))
        begun = self._clock()
        wanted = np.zeros(len(tokens), np.int8)
        wanted[wants] = 1
        rows: list[NDArray[np.float32]] = []
        for start in range(0, len(tokens), _BATCH):
            part = slice(start, start + _BATCH)
            rows.extend(self._decode(tokens[part], positions[part], sequences[part], wanted[part]))
        for feed in feeds:
            feed.slot.length += len(feed.tokens)
            feed.slot.used = feed.slot.length
        if tokens:
            each = (self._clock() - begun) / (self.pass_cost + len(tokens))
            self.token_seconds = moving_average(self.token_seconds, each)
        left = iter(rows)
        return [list(islice(left, len(feed.tokens))) if feed.every else next(left) for feed in feeds]

    def _decode(
        self, tokens: list[int], positions: list[int], sequences: list[int], wanted: NDArray[np.int8]
    ) -> NDArray[np.float32]:
        """Runs one call of the library. Returns a copy of the wanted logits, float32 [W, num_logits]."""
        count = self._batch.n_tokens = len(tokens)
        self._token[:count] = tokens
        self._position[:count] = positions
        self._sequences[:count] = np.add.outer(sequences, self.cache.copies)
        self._wanted[:count] = wanted
        code = self._library.decode(self._context, self._batch)
        if code:
            reason = "; ".join(self._library.reasons()) or "no reason given"
            raise RuntimeError(f"llama_decode returned {code}: {reason}")
        number = int(wanted.sum())
        if not number:
            return np.empty((0, self.num_logits), np.float32)
        place = self._library.get_logits(self._context)
        shared = (ctypes.c_float * (number * self.num_logits)).from_address(place)
        # the next call overwrites the library's array
        return np.array(shared, np.float32).reshape(number, self.num_logits)

    def close(self) -> None:
        """Frees the context with its cache."""
        if self._context:
            self.cache.close()
            self._library.free(self._context)
            self._context = 0


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
