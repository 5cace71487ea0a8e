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
from pyaici.engines.batching.engine import BatchingEngine
from pyaici.engines.batching.histories import log_softmax
from pyaici.engines.batching.model import Cached, Feed, PrefixCache, Runner, Slot
from pyaici.engines.engine import Request, Sampling, run_to_end
from pyaici.tokens import Vocabulary
from tests.pyaici.engines.batching.support import (
    BOS,
    WIDTH,
    CountingPasses,
    count_slots,
    failing_passes,
    make_engine,
)

Generate = Callable[..., list[int]]
LONG = [BOS, *((11 * i + 3) % 256 for i in range(60))]

histories = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=9), min_size=1, max_size=7)


@pytest.fixture
def keeper(model: Any, vocabulary: Vocabulary) -> BatchingEngine:
    return make_engine(model, vocabulary=vocabulary, keep=3)


def plain_logits(model: Any, history: list[int]) -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = model(input_ids=torch.tensor([history]), use_cache=False).logits[0, -1].float()
    logits[258:] = float("-inf")
    return logits


# -- requests -----------------------------------------------------------------------------------------


def test_a_prompt_that_continues_an_ended_sequence_feeds_only_the_rest(
    keeper: BatchingEngine, generate: Generate
) -> None:
    (first,) = keeper.run([Request(LONG, max_tokens=10)])
    with CountingPasses(keeper) as fed:
        (second,) = keeper.run([Request([*first.tokens, 65, 66], max_tokens=8)])
    assert fed.passes[0] == [3], "only the last sampled token and the two new ones must be fed"
    assert second.new_tokens == generate([*first.tokens, 65, 66], 8)
    assert keeper.stats.reused == len(first.tokens) - 1


def test_a_prompt_that_differs_at_its_end_starts_from_a_copy(
    keeper: BatchingEngine, generate: Generate
) -> None:
    keeper.run([Request(LONG, max_tokens=10)])
    other = [*LONG[:50], 7, 8, 9]
    with CountingPasses(keeper) as fed:
        (result,) = keeper.run([Request(other, max_tokens=8)])
        (again,) = keeper.run([Request(LONG, max_tokens=10)])
    assert fed.passes[0] == [3] and fed.passes[8] == [1]
    assert result.new_tokens == generate(other, 8) and again.new_tokens == generate(LONG, 10)


def test_a_prompt_starts_from_a_live_sequence(keeper: BatchingEngine, generate: Generate) -> None:
    first = keeper.add(Request(LONG, max_tokens=20))
    keeper.step()
    with CountingPasses(keeper) as fed:
        second = keeper.add(Request([*LONG, 1, 2], max_tokens=20))
        keeper.run()
    assert max(map(max, fed.passes)) == 2
    assert keeper.results(first)[0].new_tokens == generate(LONG, 20)
    assert keeper.results(second)[0].new_tokens == generate([*LONG, 1, 2], 20)


def test_prefixes_are_shared_only_with_keep_and_only_until_close(
    engine: BatchingEngine, keeper: BatchingEngine
) -> None:
    for each, kept in ((engine, 0), (keeper, 1)):
        each.run([Request(LONG, max_tokens=3)])
        assert count_slots(each) == kept
        with CountingPasses(each) as fed:
            each.run([Request(LONG, max_tokens=3)])
        assert fed.passes[0] == [1 if kept else len(LONG)]
        assert each.stats.reused == kept * (len(LONG) - 1)
        each.close()
        assert count_slots(each) == 0


def test_a_failed_pass_drops_all_kept_prefixes(keeper: BatchingEngine, hf_model: Any) -> None:
    keeper.run([Request(LONG, max_tokens=3)])
    keeper.add(Request(LONG, max_tokens=3))
    with failing_passes(keeper):
        with pytest.raises(RuntimeError):
            keeper.step()
        assert count_slots(keeper) == 0 and not keeper.busy
        with pytest.raises(RuntimeError):
            keeper.next_logits([LONG])
    assert count_slots(keeper) == 0
    np.testing.assert_allclose(
        keeper.next_logits([LONG])[0], plain_logits(hf_model, LONG), atol=1e-4, rtol=1e-4
    )


@settings(max_examples=25, deadline=None)
@given(prompts=histories, data=st.data())
def test_results_are_the_same_with_and_without_shared_prefixes(
    model: Any, vocabulary: Vocabulary, prompts: list[list[int]], data: st.DataObject
) -> None:
    """Runs kept, live and forked sequences in any order, greedy and sampled."""
    keeper = make_engine(model, vocabulary=vocabulary, keep=data.draw(st.integers(1, 3)))
    expected, numbers = [], []
    for number, prompt in enumerate(prompts):
        sampling = Sampling(1.0, seed=number) if number % 2 else Sampling(0.0)
        request = Request(
            prompt, max_tokens=data.draw(st.integers(1, 4)), n=1 + number % 3 // 2, sampling=sampling
        )
        alone = make_engine(model, vocabulary=vocabulary)
        expected.append([result.tokens for result in alone.run([request])])
        numbers.append(keeper.add(request))
        for _ in range(data.draw(st.integers(0, 3))):
            keeper.step()
    keeper.run()
    assert [[result.tokens for result in keeper.results(number)] for number in numbers] == expected
    assert count_slots(keeper) <= 3
    keeper.close()
    assert count_slots(keeper) == 0


# -- logits -------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(calls=st.lists(histories, min_size=1, max_size=4), keep=st.integers(0, 3))
def test_logits_equal_those_of_a_pass_without_cache(
    model: Any, hf_model: Any, vocabulary: Vocabulary, calls: list[list[list[int]]], keep: int
) -> None:
    keeper = make_engine(model, vocabulary=vocabulary, keep=keep)
    keeper.add(Request([0, 1, 2, 3], max_tokens=20, sampling=Sampling(1.0, seed=1)))
    for sequences in calls:
        keeper.step()
        got = keeper.next_logits(sequences)
        assert got.shape == (len(sequences), WIDTH) and got.dtype == np.float32
        for history, row in zip(sequences, got, strict=True):
            np.testing.assert_allclose(row, plain_logits(hf_model, history), atol=1e-4, rtol=1e-4)
    assert count_slots(keeper) <= 1 + keep


def test_a_history_that_extends_another_feeds_one_token(keeper: BatchingEngine) -> None:
    keeper.next_logits([LONG])
    with CountingPasses(keeper) as fed:
        keeper.next_logits([[*LONG, 1]])
        keeper.next_logits([[*LONG, 1, 2], [*LONG, 3], [*LONG, 1, 4]])
    assert fed.passes[0] == [1]
    assert sum(map(sum, fed.passes[1:])) <= 4
    assert keeper.stats.reused == 61 + 62 + 61 + 62


def test_the_common_prefix_of_histories_is_fed_once(model: Any, vocabulary: Vocabulary) -> None:
    keeper = make_engine(model, vocabulary=vocabulary, keep=3, cache_tokens=2048)
    with CountingPasses(keeper) as fed:
        keeper.next_logits([[*LONG, i, i] for i in range(20)])
    assert fed.passes == [[61], [2] * 16, [2] * 4]
    assert count_slots(keeper) == 3


def test_equal_histories_are_evaluated_once(engine: BatchingEngine) -> None:
    with CountingPasses(engine) as fed:
        rows = engine.next_logits([[1, 2], [1, 2], [1, 2]])
    assert fed.passes == [[2]] and np.array_equal(rows[0], rows[2])
    assert engine.next_logits([]).shape == (0, WIDTH)


@pytest.mark.parametrize("sequence", [[], [1] * 257, [-1], [WIDTH]], ids=["empty", "long", "low", "high"])
def test_invalid_histories_are_refused(keeper: BatchingEngine, sequence: list[int]) -> None:
    keeper.add(Request(LONG, max_tokens=2))
    with pytest.raises(ValueError, match="a sequence has"):
        keeper.next_logits([[1], sequence])
    keeper.run()
    assert count_slots(keeper) == 1


# -- scores ------------------------------------------------------------------------------------------


def test_scores_are_log_probabilities_after_each_beginning(keeper: BatchingEngine) -> None:
    long = [BOS, *((11 * i + 3) % 256 for i in range(150))]
    keeper.run([Request(long[:40], max_tokens=4)])  # kept: its logits are computed again
    with CountingPasses(keeper) as fed:
        scores = run_to_end(keeper.scores_in_pieces(long, 3))
    assert len(scores) == 150 and max(max(counts) for counts in fed.passes) <= 64
    plain = torch.tensor(log_softmax(keeper.next_logits([long[: at + 1] for at in range(150)])))
    for place, (logprob, top) in enumerate(scores):
        assert logprob == pytest.approx(float(plain[place, long[place + 1]]), abs=1e-4)
        values = plain[place].topk(3).values
        assert [float(plain[place, token]) for token, _ in top] == pytest.approx(values.tolist(), abs=1e-4)
        assert [value for _, value in top] == pytest.approx(values.tolist(), abs=1e-4)
    # the text is in the cache now
    with CountingPasses(keeper) as fed:
        keeper.run([Request(long, max_tokens=1)])
    assert fed.passes[0] == [1]
    assert run_to_end(keeper.scores_in_pieces([BOS], 1)) == []


def test_requests_step_between_the_pieces_of_scores(keeper: BatchingEngine, generate: Generate) -> None:
    number = keeper.add(Request([BOS, 65], max_tokens=6))
    pieces = keeper.scores_in_pieces([BOS, *range(200)], 0)
    while keeper.busy:
        next(pieces, None)
        keeper.step()
    assert keeper.results(number)[0].new_tokens == generate([BOS, 65], 6)


def test_abandoned_scores_and_errors_leave_nothing_behind(model: Any, vocabulary: Vocabulary) -> None:
    engine = make_engine(model, vocabulary=vocabulary, keep=0)
    pieces = engine.scores_in_pieces([BOS, *range(200)], 0)
    next(pieces)
    pieces.close()
    assert count_slots(engine) == 0
    with pytest.raises(RuntimeError), failing_passes(engine):
        run_to_end(engine.scores_in_pieces([BOS, 1, 2], 0))
    assert count_slots(engine) == 0
    for wrong in ([], [1 << 20]):
        with pytest.raises(ValueError, match="a sequence has"):
            run_to_end(engine.scores_in_pieces(wrong, 0))


# -- kept prefixes ------------------------------------------------------------------------------------


@pytest.fixture
def runner(engine: BatchingEngine) -> Runner:
    return engine._runner


def end(prefixes: PrefixCache, runner: Runner, tokens: list[int], owner: str | None = None) -> None:
    """Ends a sequence with these tokens."""
    slot = runner.cache.new_slot()
    runner.run([Feed(slot, tokens)])
    prefixes.end(tokens, slot, owner)


def test_prefixes_of_one_owner_evict_only_their_own(runner: Runner) -> None:
    for limits in ({"keep": 3}, {"keep": 100, "keep_tokens": 7}):
        prefixes = PrefixCache(runner.cache, **limits)
        end(prefixes, runner, [1, 5, 6], "modest")
        for first in range(2, 8):
            end(prefixes, runner, [first, 5], "greedy")
        found = [prefixes.find([first, 5, 6], ())[1] for first in range(1, 8)]
        assert found == [3, 0, 0, 0, 0, 2, 2]
        prefixes.clear()


def test_the_least_recently_used_prefix_is_evicted_first(runner: Runner) -> None:
    prefixes = PrefixCache(runner.cache, 2)
    for first in (1, 2):
        end(prefixes, runner, [first, 5, 6])
    copy = prefixes.start_slot([1, 5, 7, 8], ())
    assert copy.length == 2
    end(prefixes, runner, [3, 5, 6])
    found = {first: prefixes.find([first, 5, 6], ())[1] for first in (1, 2, 3)}
    assert found == {1: 3, 2: 0, 3: 3}


def test_a_prefix_of_a_kept_sequence_is_not_kept(engine: BatchingEngine, runner: Runner) -> None:
    prefixes = PrefixCache(runner.cache, 5)
    for tokens in ([1, 2], [1, 2, 3], [1], [1, 2, 3, 4], [2]):
        end(prefixes, runner, tokens)
    assert count_slots(engine) == 2 and prefixes.find([1, 2, 3, 4, 5], ())[1] == 4


def test_kept_prefixes_have_a_limit_of_tokens(engine: BatchingEngine, runner: Runner) -> None:
    prefixes = PrefixCache(runner.cache, 5, keep_tokens=6)
    for tokens in ([1, 2], [2, 3, 4, 5], [4] * 7, [3], [5]):
        end(prefixes, runner, tokens)
    assert [prefixes.find([first, 3, 4, 5], ())[1] for first in range(1, 6)] == [0, 4, 1, 0, 1]
    assert count_slots(engine) == 3


def test_a_prefix_without_memory_for_it_is_not_kept(
    engine: BatchingEngine, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefixes = PrefixCache(runner.cache, 5)
    end(prefixes, runner, [1, 2])
    with monkeypatch.context() as patch:
        patch.setattr(runner.cache, "park", Mock(side_effect=SpaceError("no memory")))
        end(prefixes, runner, [3, 4])
    assert count_slots(engine) == 0, "kept prefixes are dropped first"


@given(st.lists(st.integers(0, 1), max_size=20), st.lists(st.integers(0, 1), max_size=20), st.integers(0, 20))
def test_the_length_of_the_shared_prefix(held: list[int], tokens: list[int], length: int) -> None:
    cached = Cached(held, Slot(0, min(length, len(held))))
    shared = 0
    while shared < min(cached.slot.length, len(tokens)) and held[shared] == tokens[shared]:
        shared += 1
    assert cached.shares(tokens) == shared
