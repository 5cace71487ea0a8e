"""Runs models without a key-value cache, such as Mamba and RWKV: each sequence has a state of fixed size.

A state cannot be shortened. So a slot keeps the states after some of its tokens, and the tokens themselves: a
sequence that backtracks continues from the latest state that it still has, and reads the tokens since again.
States never change once they are kept, so forks share them.
"""

from __future__ import annotations

import inspect
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import torch
from transformers.cache_utils import DynamicCache, LinearAttentionLayer

from aicirt.system.resources import free_bytes
from pyaici.engines.batching.model import CHUNK_TOKENS, Feed, LogitsRow, Slot, moving_average
from pyaici.engines.hf.cache import SHARE
from pyaici.engines.hf.runner import HfRunner

if TYPE_CHECKING:
    from collections.abc import Sequence

    State = list[torch.Tensor]


#: A slot keeps the states after each of its last tokens; further back, one for each power of two of tokens.
_RECENT = 8
#: most states of a slot of up to 2**24 tokens
_MAX_STATES = _RECENT + 24


@dataclass(eq=False, slots=True)
class StateSlot(Slot):
    """The states of a sequence: `states[n]` is that after its first n tokens, which `tokens` has."""

    tokens: list[int] = field(default_factory=list)
    states: dict[int, State] = field(default_factory=dict)

    def latest(self, length: int) -> int:
        """Returns the most tokens, up to `length`, after which there is a state; 0 needs none."""
        return max((count for count in self.states if count <= length), default=0)

    def rewind(self) -> list[int]:
        """Goes back to the latest state that the shortened slot has. Returns the tokens to read again."""
        del self.tokens[self.length :]
        self.states = {count: state for count, state in self.states.items() if count <= self.length}
        return self.tokens[self.latest(self.length) :]

    def add(self, tokens: Sequence[int], start: int, state: State) -> None:
        """Notes the state after `tokens`, which begin at `start`."""
        self.tokens[start:] = tokens
        end = len(self.tokens)
        self.states[end] = state
        known: set[int] = set()
        for count in sorted(self.states):
            distance = (end - count).bit_length()
            if end - count >= _RECENT and distance in known:
                del self.states[count]
            known.add(distance)


class StateCache:
    """The states of all sequences; has the methods of `KeyValueCache`. States take no room that it counts."""

    def __init__(self) -> None:
        self.slots: list[StateSlot] = []
        self.parked: list[StateSlot] = []

    def new_slot(self) -> StateSlot:
        """Returns an empty slot."""
        return self._enter(StateSlot())

    def _enter(self, slot: StateSlot) -> StateSlot:
        slot.index = len(self.slots)
        self.slots.append(slot)
        return slot

    def _leave(self, slot: StateSlot) -> None:
        last = self.slots.pop()
        if last is not slot:
            self.slots[slot.index], last.index = last, slot.index
        slot.index = -1

    def extend(self, slot: Slot, tokens: int) -> None:
        """See `KeyValueCache.extend`: a state does not grow."""
        slot.used = max(slot.used, tokens)

    def fork(self, slot: Slot) -> StateSlot:
        """Returns a new slot with the same states."""
        copy = self.new_slot()
        self.copy(slot, copy)
        return copy

    def copy(self, source: Slot, target: Slot, length: int | None = None) -> None:
        """See `KeyValueCache.copy`. `target` ends at the latest state, which may be earlier than `length`."""
        assert isinstance(source, StateSlot) and isinstance(target, StateSlot)
        end = source.latest(source.length if length is None else min(length, source.length))
        if end > target.length:
            target.tokens = source.tokens[:end]
            target.states = {count: state for count, state in source.states.items() if count <= end}
            target.length = end

    def park(self, slot: Slot) -> None:
        """See `KeyValueCache.park`."""
        assert isinstance(slot, StateSlot)
        self._leave(slot)
        self.parked.append(slot)

    def resume(self, slot: Slot) -> None:
        """See `KeyValueCache.resume`."""
        assert isinstance(slot, StateSlot)
        self.parked.remove(slot)
        self._enter(slot)

    def free(self, slot: Slot) -> None:
        """Frees the slot."""
        assert isinstance(slot, StateSlot)
        if slot.placed:
            self._leave(slot)
        else:
            self.parked.remove(slot)
        slot.length = slot.used = 0
        slot.tokens, slot.states = [], {}


def keeps_states(model: Any) -> bool:
    """Returns whether all layers of a model have a state of fixed size, which this module can copy."""
    parameters = inspect.signature(model.forward).parameters
    if model.config.model_type == "rwkv":
        return "state" in parameters
    if "cache_params" not in parameters:
        return False
    layers = DynamicCache(config=model.config).layers
    return bool(layers) and all(type(layer) is LinearAttentionLayer for layer in layers)


@dataclass(eq=False, slots=True)
class _Row:
    """A slot that reads tokens: `left` of them, first those of before a backtrack."""

    slot: StateSlot
    left: list[int]
    state: State | None
    read: int
    #: return the logits after each of this many last tokens; 0 = only after the last one
    wanted: int
    lines: list[LogitsRow] = field(default_factory=list)


def _closer(lines: list[LogitsRow], right: list[LogitsRow], fresh: list[LogitsRow]) -> bool:
    """Returns whether all lines are about equal to the right ones, and not to those without a state."""

    def distance(one: LogitsRow, other: LogitsRow) -> float:
        return float((torch.as_tensor(one) - torch.as_tensor(other)).norm())

    return len(lines) == len(right) and all(
        distance(line, want) <= 0.1 * distance(line, other)
        for line, want, other in zip(lines, right, fresh, strict=True)
    )


class RecurrentRunner(HfRunner):
    """A causal language model of the library whose layers have states, together with a `StateCache`."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.cache = StateCache()
        self._rwkv = model.config.model_type == "rwkv"
        #: a pass over several tokens may begin with a state; Mamba's ignores it: it reads tokens one by one
        self._continues = False
        #: a pass may have several rows; RWKV's mixes up the states of rows of one token
        self._batches = False
        heads, tails = [[5, 1, 3], [2, 9, 4]], [[7, 2], [6, 8]]
        # one row and one token at a time is always right; without the heads the state has no effect
        right = self._try(heads, tails, continues=False, batches=False)
        fresh = self._try([[], []], tails, continues=False, batches=False)
        continues = _closer(self._try(heads, tails, continues=True, batches=False), right, fresh)
        batches = _closer(self._try(heads, tails, continues=False, batches=True), right, fresh)
        self._continues, self._batches = continues, batches

    def _try(
        self, heads: list[list[int]], tails: list[list[int]], *, continues: bool, batches: bool
    ) -> list[LogitsRow]:
        """Returns the logits after texts of two parts. Raises nothing: a pass that fails has no logits."""
        self._continues, self._batches = continues, batches
        slots = [self.cache.new_slot() for _ in heads]
        try:
            for slot, head in zip(slots, heads, strict=True):
                if head:
                    self.run([Feed(slot, head)])
            return self.run([Feed(slot, tail) for slot, tail in zip(slots, tails, strict=True)])
        except (RuntimeError, IndexError):
            return []
        finally:
            for slot in slots:
                self.cache.free(slot)

    @torch.no_grad()
    def run(self, feeds: Sequence[Feed]) -> list[LogitsRow]:
        """See `ModelRunner.run`. Rows that read the same number of tokens share a pass, without padding."""
        rows = [self._row(feed) for feed in feeds]
        todo = rows
        while todo:
            groups: defaultdict[tuple[int, bool], list[_Row]] = defaultdict(list)
            for row in todo:
                groups[self._width(row), row.state is None].append(row)
            for (width, _), group in groups.items():
                size = len(group) if self._batches else 1
                for at in range(0, len(group), size):
                    part = group[at : at + size]
                    self._pass(part, [row.left[:width] for row in part], [row.wanted > 0 for row in part])
            todo = [row for row in todo if row.left]
        return [row.lines[-row.wanted :] if row.wanted else row.lines[-1] for row in rows]

    @staticmethod
    def _row(feed: Feed) -> _Row:
        slot = feed.slot
        assert isinstance(slot, StateSlot)
        again = slot.rewind()
        start = slot.length - len(again)
        wanted = len(feed.tokens) if feed.every else 0
        return _Row(slot, [*again, *feed.tokens], slot.states.get(start), start, wanted)

    def _width(self, row: _Row) -> int:
        """Returns how many tokens the row reads in the next pass.

        A new prompt has a state before its last token, too: the next request with this prompt begins there.
        """
        if row.state is not None:
            return min(CHUNK_TOKENS, len(row.left)) if self._continues else 1
        return min(CHUNK_TOKENS, max(1, len(row.left) - 1))

    def _pass(self, rows: list[_Row], parts: list[list[int]], every: list[bool]) -> None:
        """Runs a pass without padding, and notes the logits and the new state of each row."""
        begun = time.thread_time()
        first = rows[0].state
        whole = any(every)
        # each row's tensors are joined along the batch, which copies them: models write into their states
        joined = first and [
            torch.cat(tensors) for tensors in zip(*(row.state or () for row in rows), strict=True)
        ]
        output = self._model(
            input_ids=torch.tensor(parts, device=self.device),
            use_cache=True,
            **self._wire(joined),
            **({"logits_to_keep": 0 if whole else 1} if self._last_only else {}),
        )
        states = self._states(output)
        logits: torch.Tensor = output.logits.float()
        if self._on_cpu:
            each = (time.thread_time() - begun) / (self.pass_cost + len(parts) * len(parts[0]))
            self.token_seconds = moving_average(self.token_seconds, each)
        lines: LogitsRow = logits.detach().numpy() if self._on_cpu else logits
        for number, (row, part) in enumerate(zip(rows, parts, strict=True)):
            row.state = [tensor[number : number + 1].clone() for tensor in states]
            row.slot.add(part, row.read, row.state)
            row.slot.length = row.read = row.read + len(part)
            del row.left[: len(part)]
            row.lines += list(lines[number]) if row.wanted else [lines[number][-1]]

    def _wire(self, state: State | None) -> dict[str, Any]:
        """Returns the argument of the model's forward pass for a batch of states."""
        if self._rwkv:
            return {"state": state}
        cache: Any = DynamicCache(config=self._model.config)
        tensors = iter(state or ())
        for layer in cache.layers if state else ():
            for number in range(layer.number_of_states):
                conv, recurrent = next(tensors), next(tensors)
                layer.lazy_initialization(conv_states=conv, recurrent_states=recurrent, state_idx=number)
                layer.conv_states[number].copy_(conv)
                layer.recurrent_states[number].copy_(recurrent)
                layer.has_previous_state[number] = True
        return {"cache_params": cache}

    def _states(self, output: Any) -> State:
        """Returns the tensors of the states after a pass, [B, ...] each."""
        if self._rwkv:
            return list(output.state)
        return [
            tensor
            for layer in output.cache_params.layers
            for number in range(layer.number_of_states)
            for tensor in (layer.conv_states[number], layer.recurrent_states[number])
        ]

    def most_sequences(self, asked: int | Literal["auto"] | None) -> int | None:
        """Returns how many sequences a share of the free memory has room for; None = any number.

        Raises ValueError for a number of tokens, which says nothing about states.
        """
        if asked is None:
            return None
        if asked != "auto":
            raise ValueError(
                f"cache_tokens is {asked}, but {type(self._model).__name__} has no key-value cache: its "
                'state does not grow with the text; leave cache_tokens out, or set it to "auto"'
            )
        slot = self.cache.new_slot()
        self.run([Feed(slot, [0])])
        size = sum(tensor.numel() * tensor.element_size() for tensor in slot.states[1])
        self.cache.free(slot)
        on_gpu = self.device.type == "cuda"
        free = torch.cuda.mem_get_info(self.device)[0] if on_gpu else free_bytes()
        return max(1, int(free * SHARE.get(self.device.type, SHARE["cpu"])) // (size * _MAX_STATES))
