"""The engine without controllers, compared with the library's own generation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pyaici.engines.batching.engine import BatchingEngine
from pyaici.engines.engine import (
    Event,
    Finished,
    FinishReason,
    Forked,
    Origin,
    Request,
    Sampling,
    Started,
    TokensAppended,
)
from pyaici.tokens import Vocabulary
from tests.pyaici.engines.batching.support import BOS, EOS, CountingPasses, make_engine

Generate = Callable[..., list[int]]
PROMPTS = [[BOS, 72, 101, 108], [BOS], [65] * 40, [BOS, 1, 2, 3, 4, 5, 6, 7, 8, 9]]


@pytest.mark.parametrize("prompt", PROMPTS, ids=len)
def test_greedy_alone_equals_generate(engine: BatchingEngine, generate: Generate, prompt: list[int]) -> None:
    (result,) = engine.run([Request(prompt, max_tokens=30)])
    assert result.new_tokens == generate(prompt, 30)
    assert result.tokens[: len(prompt)] == prompt
    assert result.origins == [Origin.PROMPT] * len(prompt) + [Origin.SAMPLED] * len(result.new_tokens)


def test_greedy_in_a_mixed_batch_equals_generate(engine: BatchingEngine, generate: Generate) -> None:
    """Other requests have other lengths, start late, end early, are cancelled, or sample."""
    first = engine.add(Request(PROMPTS[0], max_tokens=40))
    ends_early = engine.add(Request(PROMPTS[1], max_tokens=3))
    engine.step()
    sampled = engine.add(Request(PROMPTS[2], max_tokens=20, sampling=Sampling(1.5, seed=3), n=2))
    for _ in range(12):  # the prompt is fed beside the other requests, and then copied
        engine.step()
    late = engine.add(Request(PROMPTS[3], max_tokens=25))
    engine.step()
    engine.cancel(sampled)
    engine.run()
    assert engine.results(first)[0].new_tokens == generate(PROMPTS[0], 40)
    assert engine.results(ends_early)[0].new_tokens == generate(PROMPTS[1], 3)
    assert engine.results(late)[0].new_tokens == generate(PROMPTS[3], 25)
    cancelled = engine.results(sampled)
    assert [r.finish_reason for r in cancelled] == [FinishReason.CANCELLED] * 2


def test_a_long_prompt_is_fed_in_pieces_while_others_go_on(
    model: Any, vocabulary: Vocabulary, generate: Generate
) -> None:
    engine = make_engine(model, vocabulary=vocabulary)
    short = engine.add(Request(PROMPTS[0], max_tokens=30))
    engine.step()
    long_prompt = [BOS, *((7 * i) % 256 for i in range(180))]
    long = engine.add(Request(long_prompt, max_tokens=5))
    tokens_of_short: list[int] = []
    with CountingPasses(engine) as fed:
        for _ in range(3):
            events = engine.step()
            tokens_of_short += [e.tokens[0] for e in events if isinstance(e, TokensAppended) and e.seq == 0]
    assert len(tokens_of_short) == 3, "the short request must get a token in every step"
    cost = engine._runner.pass_cost
    assert max(map(max, fed.passes)) == 3 * (cost + 1) - cost, "steps may take four times as long"
    engine.run()
    assert engine.results(long)[0].new_tokens == generate(long_prompt, 5)
    assert engine.results(short)[0].new_tokens == generate(PROMPTS[0], 30)


def test_the_time_of_a_step_bounds_the_pieces_of_a_prompt_alone(model: Any, vocabulary: Vocabulary) -> None:
    engine = make_engine(model, vocabulary=vocabulary)
    engine.add(Request([BOS, *((7 * i) % 256 for i in range(180))], max_tokens=5))
    with CountingPasses(engine) as fed:
        for seconds in (0.0, 0.031, 0.032, 10.0):
            engine._runner.token_seconds = seconds
            engine.step()
    assert [max(each) for each in fed.passes] == [64, 64, 32, 1]


def test_sampling_depends_on_the_seed_and_not_on_batch_mates(engine: BatchingEngine) -> None:
    sampling = Sampling(temperature=1.3, top_p=0.95, seed=11)
    alone = [engine.run([Request(p, max_tokens=20, sampling=sampling)])[0].tokens for p in PROMPTS]
    together = engine.run([Request(p, max_tokens=20, sampling=sampling) for p in PROMPTS])
    assert [r.tokens for r in together] == alone
    other = engine.run([Request(PROMPTS[0], max_tokens=20, sampling=Sampling(1.3, 0.95, seed=12))])
    assert other[0].tokens != alone[0]


def test_without_a_seed_runs_differ(engine: BatchingEngine) -> None:
    runs = {
        tuple(engine.run([Request([BOS], max_tokens=20, sampling=Sampling(2.0))])[0].tokens) for _ in range(4)
    }
    assert len(runs) == 4


def test_n_sequences_share_one_prefill_and_sample_independently(engine: BatchingEngine) -> None:
    events: list[Event] = []
    request = Request(PROMPTS[2], n=4, max_tokens=6, sampling=Sampling(2.0, seed=5))
    with CountingPasses(engine) as fed:
        results = engine.run([request], events.append)
    assert fed.passes[:2] == [[40], [1] * 4]
    assert len({tuple(r.tokens) for r in results}) == 4
    assert [r.parent for r in results] == [None, 0, 0, 0]
    (forked,) = [e for e in events if isinstance(e, Forked)]
    assert forked.by_engine and forked.children == [1, 2, 3]
    assert [r.tokens for r in engine.run([request])] == [r.tokens for r in results]
    single = engine.run([Request(PROMPTS[2], max_tokens=6, sampling=Sampling(2.0, seed=5))])
    assert single[0].tokens == results[0].tokens, "the first of n sequences must equal that of n=1"


def test_the_end_token_ends_a_sequence(model: Any, generate: Generate, vocabulary: Vocabulary) -> None:
    free_run = generate(PROMPTS[0], 30, eos=None)
    end = free_run[4]
    engine = make_engine(model, vocabulary=vocabulary.ending_with((EOS, end)))
    (result,) = engine.run([Request(PROMPTS[0], max_tokens=30)])
    assert result.finish_reason is FinishReason.EOS
    assert result.new_tokens == free_run[: free_run.index(end) + 1]


def test_max_tokens_and_the_context_end_a_sequence(engine: BatchingEngine) -> None:
    (result,) = engine.run([Request([65] * 250, max_tokens=50)])
    assert result.finish_reason is FinishReason.LENGTH and len(result.tokens) == 256
    (result,) = engine.run([Request([65], max_tokens=1)])
    assert result.finish_reason is FinishReason.LENGTH and len(result.new_tokens) == 1


def test_events_report_everything_in_order(engine: BatchingEngine) -> None:
    events: list[Event] = []
    (result,) = engine.run([Request([72, 105], max_tokens=4)], events.append)
    assert isinstance(events[0], Started) and events[0].prompt == "Hi" and events[0].tokens == [72, 105]
    appended = [e for e in events if isinstance(e, TokensAppended)]
    assert [t for e in appended for t in e.tokens] == result.new_tokens
    assert all(e.origin is Origin.SAMPLED for e in appended)
    assert events[-1] == Finished(0, 0, FinishReason.LENGTH, None)
    shown = "".join(e.text for e in appended)
    assert result.text.startswith(shown)
    assert 0 < result.first_token_seconds <= result.seconds


def test_an_empty_prompt_begins_with_the_begin_token(engine: BatchingEngine, generate: Generate) -> None:
    for prompt in ([], ""):
        (result,) = engine.run([Request(prompt, max_tokens=5)])
        assert result.tokens == [BOS, *generate([BOS], 5)]


def test_ids_that_are_no_tokens_are_never_chosen(engine: BatchingEngine) -> None:
    results = engine.run([Request([BOS], max_tokens=60, n=4, sampling=Sampling(50.0, seed=1))])
    assert max(t for r in results for t in r.tokens) <= EOS


def test_invalid_requests_are_refused(engine: BatchingEngine) -> None:
    with pytest.raises(ValueError, match="token 288"):
        engine.add(Request([288]))
    with pytest.raises(ValueError, match="runtime"):
        engine.add(Request([1], controller="regex"))
    with pytest.raises(ValueError, match="256"):
        engine.add(Request([1] * 256))
    for wrong in ({"n": 0}, {"max_tokens": 0}, {"beams": 0}, {"beams": 2, "n": 3}):
        with pytest.raises(ValueError):
            Request([1], **wrong)
    for wrong in (
        {"temperature": -1},
        {"temperature": float("nan")},
        {"top_p": 0},
        {"top_p": 1.1},
        {"top_k": -1},
    ):
        with pytest.raises(ValueError):
            Sampling(**wrong)
    assert not engine.busy


def test_results_can_be_fetched_once_after_the_end(engine: BatchingEngine) -> None:
    number = engine.add(Request([1], max_tokens=2))
    with pytest.raises(ValueError, match="1 sequences"):
        engine.results(number)
    engine.run()
    assert len(engine.results(number)) == 1
    with pytest.raises(KeyError):
        engine.results(number)


def test_closing_ends_everything(engine: BatchingEngine) -> None:
    with engine:
        number = engine.add(Request([1], max_tokens=2))
    assert not engine.busy
    assert engine.results(number)[0].finish_reason is FinishReason.CANCELLED
