"""The slot cache compared with a plain list per sequence, and with the model's own results."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aicirt.contract.errors import SpaceError
from pyaici import HfEngine, Request
from pyaici.engines.batching.model import Feed, Slot
from pyaici.engines.hf.cache import HfSlot, SlotCache
from pyaici.engines.hf.runner import ModelRunner, split
from pyaici.tokens import Vocabulary
from tests.pyaici.engines.batching.support import BOS, CountingCalls, make_model

CPU = torch.device("cpu")
HEADS, DIM, LAYERS = 2, 3, 2


class SlotMachine(RuleBasedStateMachine):
    """Runs operations in any order: every slot keeps the values written to it, in every layer.

    An operation for which there is no room changes nothing.
    """

    limit: int | None = None

    @initialize()
    def start(self) -> None:
        self.cache = SlotCache(LAYERS, num_slots=1, capacity=2)
        self.cache.limit = self.limit
        self.model: list[tuple[HfSlot, list[float]]] = []
        self.parked: list[tuple[HfSlot, list[float]]] = []
        self.next = 1.0

    @rule()
    def new(self) -> None:
        with self._room(1, 0):
            self.model.append((self.cache.new_slot(), []))

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        slot, _ = self.model.pop(data.draw(st.integers(0, len(self.model) - 1)))
        self.cache.free(slot)

    @precondition(lambda self: self.model and len(self.model) < 8)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        slot, held = data.draw(st.sampled_from(self.model))
        with self._room(1, 0):
            self.model.append((self.cache.fork(slot), held.copy()))

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        slot, held = data.draw(st.sampled_from(self.model))
        keep = data.draw(st.integers(0, len(held)))
        del held[keep:]
        slot.length = keep

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def park(self, data: st.DataObject) -> None:
        slot, held = self.model.pop(data.draw(st.integers(0, len(self.model) - 1)))
        self.cache.park(slot)
        self.parked.append((slot, held))

    @precondition(lambda self: self.parked and len(self.model) < 8)
    @rule(data=st.data())
    def resume(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, len(self.parked) - 1))
        with self._room(1, len(self.parked[number][1])):
            self.cache.resume(self.parked[number][0])
            self.model.append(self.parked.pop(number))

    @precondition(lambda self: self.parked)
    @rule(data=st.data())
    def free_a_parked_slot(self, data: st.DataObject) -> None:
        slot, _ = self.parked.pop(data.draw(st.integers(0, len(self.parked) - 1)))
        self.cache.free(slot)

    @precondition(lambda self: self.model + self.parked and len(self.model) < 8)
    @rule(data=st.data())
    def copy_a_beginning(self, data: st.DataObject) -> None:
        slot, held = data.draw(st.sampled_from(self.model + self.parked))
        length = data.draw(st.integers(0, len(held)))
        with self._room(1, length):
            copy = self.cache.new_slot()
            self.cache.extend(copy, length)
            self.cache.copy(slot, copy, length)
            self.model.append((copy, held[:length]))

    @contextlib.contextmanager
    def _room(self, slots: int, tokens: int) -> Iterator[None]:
        """Expects SpaceError if this many more slots, or a slot of this many tokens, exceed the limit."""
        longest = max([1, tokens, *(len(held) for _, held in self.model)])
        number = len(self.model) + slots
        if self.limit is None or number * longest <= self.limit:
            yield
            return
        with pytest.raises(SpaceError):
            yield

    @precondition(lambda self: len(self.model) > 1)
    @rule(data=st.data())
    def catch_up(self, data: st.DataObject) -> None:
        """Copies the rest of a slot to another that holds its beginning."""
        (a, full), (b, _) = data.draw(st.permutations(self.model))[:2]
        b.length = min(b.length, data.draw(st.integers(0, len(full))), self._shared(a, b))
        self.cache.copy(a, b)
        held = next(held for slot, held in self.model if slot is b)
        held[:] = full

    def _shared(self, a: Slot, b: Slot) -> int:
        x = next(held for slot, held in self.model if slot is a)
        y = next(held for slot, held in self.model if slot is b)
        count = 0
        for one, other in zip(x, y, strict=False):
            if one != other:
                break
            count += 1
        return count

    @precondition(lambda self: self.model)
    @rule(data=st.data(), gather=st.booleans())
    def append(self, data: st.DataObject, gather: bool) -> None:
        """Appends different numbers of tokens to some slots in one pass, in any order."""
        size = data.draw(st.integers(1, len(self.model)))
        chosen = data.draw(st.permutations(self.model))[:size]
        if gather:
            self.cache.gather([slot for slot, _ in chosen])
        counts = [data.draw(st.integers(1, 4)) for _ in chosen]
        slots = [slot for slot, _ in chosen]
        longest = max(slot.length + count for slot, count in zip(slots, counts, strict=True))
        placement = None
        with self._room(0, longest):
            placement = self.cache.place_rows(slots, counts, CPU)
        if placement is None:
            return
        width = max(counts)
        states = torch.full((size, HEADS, width, DIM), -99.0)
        for row, ((_, held), count) in enumerate(zip(chosen, counts, strict=True)):
            for i in range(count):
                states[row, :, width - count + i] = self.next
                held.append(self.next)
                self.next += 1
        self.cache.placement = placement
        for layer in range(LAYERS):
            keys, values = self.cache.update(states + layer, -states - layer, layer)
            assert keys.shape == (size, HEADS, self.cache.placement.num_keys, DIM)
            for row, (_, held) in enumerate(chosen):
                assert (keys[row, 0, : len(held), 0] - layer).tolist() == held
                assert (-values[row, 1, : len(held), 2] - layer).tolist() == held
        for (slot, _), count in zip(chosen, counts, strict=True):
            slot.length += count

    @invariant()
    def slots_hold_what_was_written(self) -> None:
        assert self.limit is None or self.cache.num_slots * self.cache.capacity <= self.limit
        assert sorted(slot.index for slot, _ in self.model) == list(range(len(self.model)))
        assert sorted(map(id, self.cache.parked)) == sorted(id(slot) for slot, _ in self.parked)
        for slot, held in self.parked:
            assert slot.length == len(held) and not slot.placed and slot.parked is not None
            for number, (keys, values) in enumerate(slot.parked):
                assert keys[0, :, 0].tolist() == [value + number for value in held]
                assert values[1, :, 2].tolist() == [-value - number for value in held]
        if not self.model:
            assert (self.cache.num_slots, self.cache.capacity) == (1, 2)
        for slot, held in self.model:
            assert slot.length == len(held) and self.cache.slots[slot.index] is slot
            for number, layer in enumerate(self.cache.layers):
                if layer.is_initialized and held:
                    row = layer.keys[slot.index, :, : len(held)]
                    assert torch.equal(row[0, :, 0] - number, torch.tensor(held))
                    assert not bool(layer.keys[slot.index, :, slot.used :].any())


class LimitedSlotMachine(SlotMachine):
    """The same with a small limit on the cache."""

    limit = 30


TestSlots = SlotMachine.TestCase
TestSlots.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)
TestLimitedSlots = LimitedSlotMachine.TestCase
TestLimitedSlots.settings = TestSlots.settings


def test_a_failed_allocation_changes_nothing() -> None:
    """The first layer gets its memory. The second needs more than a process can address."""
    cache = SlotCache(2, num_slots=1, capacity=1)
    slot = cache.new_slot()
    states = [torch.ones((1, 1, 1, 1), dtype=torch.uint8), torch.ones((1, 1 << 10, 1, 1 << 11)).double()]
    cache.placement = cache.place_rows([slot], [1], CPU)
    for layer, one in enumerate(states):
        cache.update(one, one, layer)
    slot.length = 1
    with pytest.raises(SpaceError, match="cache of 1 sequence of 16777216 tokens"):
        cache.place_rows([slot], [1 << 23], CPU)
    assert (cache.num_slots, cache.capacity) == (1, 1)
    # a smaller allocation works, and the contents are kept
    cache.new_slot()
    cache.placement = cache.place_rows([slot], [1], CPU)
    assert (cache.num_slots, cache.capacity) == (2, 2)
    for layer, one in enumerate(states):
        keys, values = cache.update(one * 2, one * 3, layer)
        assert keys[0, 0, :, 0].tolist() == [1, 2] and values[0, 0, :, 0].tolist() == [1, 3]


def test_a_freed_slot_leaves_no_infinities() -> None:
    """Attention multiplies masked values by zero, and infinity times zero is NaN."""
    cache = SlotCache(1)
    first, second = cache.new_slot(), cache.new_slot()
    cache.placement = cache.place_rows([first, second], [3, 1], CPU)
    cache.update(*[torch.full((2, HEADS, 3, DIM), float("inf"))] * 2, 0)
    first.length, second.length = 3, 1
    cache.free(first)
    cache.free(second)
    assert not bool(cache.layers[0].keys.any()) and not bool(cache.layers[0].values.any())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("config", "options"),
    [
        ("LlamaConfig", {}),
        ("LlamaConfig", {"attn_implementation": "eager"}),
        ("MistralConfig", {"sliding_window": 5}),
        ("Gemma3TextConfig", {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"]}),
    ],
    ids=["llama", "eager", "sliding", "hybrid"],
)
def test_ragged_passes_give_the_logits_of_a_pass_without_cache(
    config: str, options: dict[str, Any], dtype: torch.dtype
) -> None:
    """Mixes appends of many lengths, forks, truncation and gaps. Exact in float64, close in float32."""
    model = make_model(config, **options).to(dtype)
    runner = ModelRunner(model)
    tolerance = 2e-6 if dtype is torch.float64 else 1e-3  # the result is float32 in any case
    random = torch.Generator().manual_seed(5)
    held: list[tuple[Slot, list[int]]] = [(runner.cache.new_slot(), []) for _ in range(4)]
    for step in range(12):
        chosen = [held[i] for i in torch.randperm(len(held), generator=random)[: 1 + step % 4]]
        feeds = []
        for slot, tokens in chosen:
            new = torch.randint(0, 256, (1 + (step * 7 + slot.index * 5) % 9,), generator=random).tolist()
            tokens += new
            feeds.append(Feed(slot, new))
        for (_, tokens), got in zip(chosen, runner.run(feeds), strict=True):
            want = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, -1]
            assert torch.allclose(torch.from_numpy(got).to(dtype), want, atol=tolerance)
            assert got.argmax() == want.argmax()
        slot, tokens = chosen[0]
        if step % 3 == 0:  # truncate
            slot.length = len(tokens) // 2
            del tokens[slot.length :]
        if step % 4 == 1:
            held.append((runner.cache.fork(slot), tokens.copy()))
        if step % 5 == 4:
            runner.cache.free(held.pop(0)[0])


def test_a_truncated_slot_gives_bitwise_equal_logits_again() -> None:
    """Equal shapes give equal bits, regardless of what the slot held in between."""
    runner = ModelRunner(make_model())
    slot = runner.cache.new_slot()
    runner.run([Feed(slot, [1, 2, 3, 4, 5])])
    (before,) = runner.run([Feed(slot, [6])])
    runner.run([Feed(slot, [7, 8, 9])])
    slot.length = 5
    (again,) = runner.run([Feed(slot, [6])])
    assert np.array_equal(before, again)


def test_long_feeds_are_split_into_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyaici.engines.hf.runner.CHUNK_TOKENS", 16)
    model = make_model()
    runner = ModelRunner(model)
    slots = [runner.cache.new_slot() for _ in range(3)]
    tokens = [list(range(40)), [1], list(range(10, 43))]
    with CountingCalls(model) as calls:
        got = runner.run([Feed(slot, list(t)) for slot, t in zip(slots, tokens, strict=True)])
    assert max(width for _, width in calls.shapes) <= 16
    assert [slot.length for slot in slots] == [40, 1, 33]
    for row, t in zip(got, tokens, strict=True):
        want = model(input_ids=torch.tensor([t]), use_cache=False).logits[0, -1]
        assert torch.allclose(torch.from_numpy(row), want, atol=1e-4)


def test_rows_share_a_pass_if_padding_costs_less_than_another_pass() -> None:
    assert split([("a", 1), ("b", 1), ("c", 1)], 12) == [["a", "b", "c"]]
    assert split([("long", 500), ("a", 1), ("b", 1)], 12) == [["a", "b"], ["long"]]
    assert split([("a", 1), ("splice", 7), ("b", 1)], 12) == [["a", "b", "splice"]]
    assert split([("a", 1), ("splice", 9), ("b", 1)], 12) == [["a", "b"], ["splice"]]
    assert split([("p", 100), ("q", 108), ("a", 1)], 12) == [["a"], ["p", "q"]]
    assert split([("a", 1), ("long", 500)], 1000) == [["a", "long"]]
    assert split([], 12) == []


def test_an_idle_engine_gives_memory_back(model: Any, vocabulary: Vocabulary) -> None:
    engine = HfEngine(model, vocabulary=vocabulary, keep=2)
    cache: SlotCache = engine._runner.cache  # type: ignore[assignment]
    first = cache.num_slots, cache.capacity
    long = [BOS, *range(200)]
    for request in (Request(long, max_tokens=100), *(Request([BOS, i], max_tokens=3) for i in range(20))):
        engine.add(request)
    engine.step()
    assert cache.num_slots * cache.capacity > 4 * first[0] * first[1]
    engine.run()
    assert (cache.num_slots, cache.capacity) == first
    assert all(layer.keys.shape[::2] == first for layer in cache.layers)
    assert len(cache.parked) == 2
