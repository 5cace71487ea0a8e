"""Reuse of the cache between sequences, and logits outside of requests, compared with uncached passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aicirt.contract.errors import SpaceError
from pyaici.engines.batching.prefixes import Cached, PrefixCache
from pyaici.engines.hf import HfEngine, Request, Sampling
from pyaici.engines.hf.cache import SlotCache
from pyaici.tokens import Vocabulary
from tests.pyaici.engines.batching.support import BOS, EOS, WIDTH, CountingCalls, make_model

Generate = Callable[..., list[int]]
LONG = [BOS, *((11 * i + 3) % 256 for i in range(60))]

histories = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=9), min_size=1, max_size=7)


@pytest.fixture
def keeper(model: Any, vocabulary: Vocabulary) -> HfEngine:
    return HfEngine(model, vocabulary=vocabulary, keep=3)


def plain_logits(model: Any, history: list[int]) -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = model(input_ids=torch.tensor([history]), use_cache=False).logits[0, -1].float()
    logits[258:] = float("-inf")
    return logits


def slots(engine: HfEngine) -> int:
    cache: SlotCache = engine._runner.cache  # type: ignore[assignment]
    return len(cache.slots) + len(cache.parked)


# -- requests -----------------------------------------------------------------------------------------


def test_a_prompt_that_continues_an_ended_sequence_feeds_only_the_rest(
    keeper: HfEngine, model: Any, generate: Generate
) -> None:
    (first,) = keeper.run([Request(LONG, max_tokens=10)])
    with CountingCalls(model) as calls:
        (second,) = keeper.run([Request([*first.tokens, 65, 66], max_tokens=8)])
    assert calls.shapes[0] == (1, 3), "only the last sampled token and the two new ones must be fed"
    assert second.new_tokens == generate([*first.tokens, 65, 66], 8)
    assert keeper.stats.reused == len(first.tokens) - 1


def test_a_prompt_that_differs_at_its_end_starts_from_a_copy(
    keeper: HfEngine, model: Any, generate: Generate
) -> None:
    keeper.run([Request(LONG, max_tokens=10)])
    other = [*LONG[:50], 7, 8, 9]
    with CountingCalls(model) as calls:
        (result,) = keeper.run([Request(other, max_tokens=8)])
        (again,) = keeper.run([Request(LONG, max_tokens=10)])
    assert calls.shapes[0] == (1, 3) and calls.shapes[8] == (1, 1)
    assert result.new_tokens == generate(other, 8) and again.new_tokens == generate(LONG, 10)


def test_a_prompt_starts_from_a_live_sequence(keeper: HfEngine, model: Any, generate: Generate) -> None:
    first = keeper.add(Request(LONG, max_tokens=20))
    keeper.step()
    with CountingCalls(model) as calls:
        second = keeper.add(Request([*LONG, 1, 2], max_tokens=20))
        keeper.run()
    assert max(width for _, width in calls.shapes) == 2
    assert keeper.results(first)[0].new_tokens == generate(LONG, 20)
    assert keeper.results(second)[0].new_tokens == generate([*LONG, 1, 2], 20)


def test_prefixes_are_shared_only_with_keep_and_only_until_close(
    engine: HfEngine, keeper: HfEngine, model: Any
) -> None:
    engine.run([Request(LONG, max_tokens=3)])
    keeper.run([Request(LONG, max_tokens=3)])
    assert slots(engine) == 0 and slots(keeper) == 1
    keeper.close()
    assert slots(keeper) == 0
    for each in (engine, keeper):
        with CountingCalls(model) as calls:
            each.run([Request(LONG, max_tokens=3)])
        assert calls.shapes[0] == (1, len(LONG)) and each.stats.reused == 0


def test_a_failed_pass_drops_all_kept_prefixes(
    keeper: HfEngine, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper.run([Request(LONG, max_tokens=3)])
    keeper.add(Request(LONG, max_tokens=3))
    with monkeypatch.context() as patch:
        patch.setattr(model, "forward", None)
        with pytest.raises(TypeError):
            keeper.step()
        assert slots(keeper) == 0 and not keeper.busy
        with pytest.raises(TypeError):
            keeper.next_logits([LONG])
    assert slots(keeper) == 0
    np.testing.assert_allclose(keeper.next_logits([LONG])[0], plain_logits(model, LONG), atol=1e-4, rtol=1e-4)


@settings(max_examples=25, deadline=None)
@given(prompts=histories, data=st.data())
def test_results_are_the_same_with_and_without_shared_prefixes(
    prompts: list[list[int]], data: st.DataObject
) -> None:
    """Runs kept, live and forked sequences in any order, greedy and sampled."""
    model, vocabulary = _MODEL, _VOCABULARY
    keeper = HfEngine(model, vocabulary=vocabulary, keep=data.draw(st.integers(1, 3)))
    expected, numbers = [], []
    for number, prompt in enumerate(prompts):
        sampling = Sampling(1.0, seed=number) if number % 2 else Sampling(0.0)
        request = Request(
            prompt, max_tokens=data.draw(st.integers(1, 4)), n=1 + number % 3 // 2, sampling=sampling
        )
        alone = HfEngine(model, vocabulary=vocabulary)
        expected.append([result.tokens for result in alone.run([request])])
        numbers.append(keeper.add(request))
        for _ in range(data.draw(st.integers(0, 3))):
            keeper.step()
    keeper.run()
    assert [[result.tokens for result in keeper.results(number)] for number in numbers] == expected
    assert slots(keeper) <= 3
    keeper.close()
    assert slots(keeper) == 0


_MODEL = make_model()
_VOCABULARY = Vocabulary(
    [bytes([i]) for i in range(256)] + [b"", b""],
    {BOS: "<s>", EOS: "</s>"},
    eos=(EOS,),
    bos=BOS,
    vocab_size=WIDTH,
)


# -- logits -------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(calls=st.lists(histories, min_size=1, max_size=4), keep=st.integers(0, 3))
def test_logits_equal_those_of_a_pass_without_cache(calls: list[list[list[int]]], keep: int) -> None:
    keeper = HfEngine(_MODEL, vocabulary=_VOCABULARY, keep=keep)
    keeper.add(Request([0, 1, 2, 3], max_tokens=20, sampling=Sampling(1.0, seed=1)))
    for sequences in calls:
        keeper.step()
        got = keeper.next_logits(sequences)
        assert got.shape == (len(sequences), WIDTH) and got.dtype == np.float32
        for history, row in zip(sequences, got, strict=True):
            np.testing.assert_allclose(row, plain_logits(_MODEL, history), atol=1e-4, rtol=1e-4)
    assert slots(keeper) <= 1 + keep


def test_a_history_that_extends_another_feeds_one_token(keeper: HfEngine, model: Any) -> None:
    keeper.next_logits([LONG])
    with CountingCalls(model) as calls:
        keeper.next_logits([[*LONG, 1]])
        keeper.next_logits([[*LONG, 1, 2], [*LONG, 3], [*LONG, 1, 4]])
    assert calls.shapes[0] == (1, 1)
    assert sum(rows * width for rows, width in calls.shapes[1:]) <= 4
    assert keeper.stats.reused == 61 + 62 + 61 + 62


def test_the_common_prefix_of_histories_is_fed_once(keeper: HfEngine, model: Any) -> None:
    with CountingCalls(model) as calls:
        keeper.next_logits([[*LONG, i, i] for i in range(20)])
    assert calls.shapes == [(1, 61), (16, 2), (4, 2)]
    assert slots(keeper) == 3


def test_equal_histories_are_evaluated_once(engine: HfEngine, model: Any) -> None:
    with CountingCalls(model) as calls:
        rows = engine.next_logits([[1, 2], [1, 2], [1, 2]])
    assert calls.shapes == [(1, 2)] and np.array_equal(rows[0], rows[2])
    assert engine.next_logits([]).shape == (0, WIDTH)


@pytest.mark.parametrize("sequence", [[], [1] * 257, [-1], [WIDTH]], ids=["empty", "long", "low", "high"])
def test_invalid_histories_are_refused(keeper: HfEngine, sequence: list[int]) -> None:
    keeper.add(Request(LONG, max_tokens=2))
    with pytest.raises(ValueError, match="a sequence has"):
        keeper.next_logits([[1], sequence])
    keeper.run()
    assert slots(keeper) == 1


# -- kept prefixes ------------------------------------------------------------------------------------


def filled(cache: SlotCache, tokens: list[int]) -> Cached:
    slot = cache.new_slot()
    slot.length = slot.used = len(tokens)
    return Cached(tokens, slot)


def test_the_least_recently_used_prefix_is_evicted_first() -> None:
    cache = SlotCache(1)
    prefixes = PrefixCache(cache, 2)
    for first in (1, 2):
        prefixes.end(*_parts(filled(cache, [first, 5, 6])))
    copy = prefixes.start([1, 5, 7, 8], ())
    assert copy.length == 2
    prefixes.end(*_parts(filled(cache, [3, 5, 6])))
    found = {first: prefixes.find([first, 5, 6], ())[1] for first in (1, 2, 3)}
    assert found == {1: 3, 2: 0, 3: 3}


def test_a_prefix_of_a_kept_sequence_is_not_kept() -> None:
    cache = SlotCache(1)
    prefixes = PrefixCache(cache, 5)
    for tokens in ([1, 2], [1, 2, 3], [1], [1, 2, 3, 4], [2]):
        prefixes.end(*_parts(filled(cache, tokens)))
    assert not cache.slots and len(cache.parked) == 2 and prefixes.find([1, 2, 3, 4, 5], ())[1] == 4


def test_kept_prefixes_have_a_limit_of_tokens() -> None:
    cache = SlotCache(1)
    prefixes = PrefixCache(cache, 5, keep_tokens=6)
    for tokens in ([1, 2], [2, 3, 4, 5], [4] * 7, [3], [5]):
        prefixes.end(*_parts(filled(cache, tokens)))
    assert sorted(slot.length for slot in cache.parked) == [1, 1, 4]


def test_a_prefix_without_memory_for_it_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = SlotCache(1)
    prefixes = PrefixCache(cache, 5)
    prefixes.end(*_parts(filled(cache, [1, 2])))
    with monkeypatch.context() as patch:
        patch.setattr(cache, "park", Mock(side_effect=SpaceError("no memory")))
        prefixes.end(*_parts(filled(cache, [3, 4])))
    assert not cache.slots and not cache.parked, "kept prefixes are dropped first"


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


@given(st.lists(st.integers(0, 1), max_size=20), st.lists(st.integers(0, 1), max_size=20), st.integers(0, 20))
def test_the_length_of_the_shared_prefix(held: list[int], tokens: list[int], length: int) -> None:
    cached = filled(SlotCache(1), held)
    cached.slot.length = min(length, len(held))
    shared = 0
    while shared < min(cached.slot.length, len(tokens)) and held[shared] == tokens[shared]:
        shared += 1
    assert cached.shares(tokens) == shared


def _parts(cached: Cached) -> tuple[list[int], Any]:
    return list(cached.tokens), cached.slot
