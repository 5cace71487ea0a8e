"""A cache with a limit: requests wait for room or are refused, and other requests are not affected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from aicirt.contract.abi import Verb
from aicirt.contract.errors import AiciError, SpaceError
from aicirt.contract.messages import StepInput
from pyaici.client.results import PreResult
from pyaici.engines.batching.budget import Budget
from pyaici.engines.batching.engine import BatchingEngine
from pyaici.engines.engine import Event, Finished, FinishReason, Request, Sampling, TokensAppended
from pyaici.tokens import Vocabulary
from tests.pyaici.engines.batching.scripted import Script, ScriptedRuntime, anything, fork
from tests.pyaici.engines.batching.support import (
    BOS,
    CountingPasses,
    count_slots,
    failing_passes,
    make_engine,
)

Generate = Callable[..., list[int]]
PROMPT = [BOS, 72, 101, 108]
MATE = [BOS, 1, 2, 3, 4, 5, 6]
#: room for four sequences of the tiny model's 256 tokens of context
FOUR = 1024


@pytest.fixture
def bounded(model: Any, vocabulary: Vocabulary) -> BatchingEngine:
    return make_engine(model, vocabulary=vocabulary, cache_tokens=FOUR)


def started(events: list[Event]) -> list[int]:
    """Returns the requests in the order of their first tokens."""
    found = [event.request for event in events if isinstance(event, TokensAppended)]
    return list(dict.fromkeys(found))


def test_requests_wait_for_room_in_order(bounded: BatchingEngine, generate: Generate) -> None:
    prompts = [[BOS, i] for i in range(5)]
    numbers = [bounded.add(Request(prompt, max_tokens=254 - i)) for i, prompt in enumerate(prompts)]
    events: list[Event] = []
    with CountingPasses(bounded) as fed:
        while bounded.busy:
            events += bounded.step()
    assert max(map(len, fed.passes)) == 4
    assert started(events) == numbers
    for i, (number, prompt) in enumerate(zip(numbers, prompts, strict=True)):
        (result,) = bounded.results(number)
        assert result.new_tokens == generate(prompt, 254)[: 254 - i] and result.error is None


def test_small_requests_do_not_overtake_a_large_one(long_model: Any, vocabulary: Vocabulary) -> None:
    engine = make_engine(long_model, vocabulary=vocabulary, cache_tokens=FOUR)
    first = engine.add(Request(PROMPT, max_tokens=300, sampling=Sampling(2.0, seed=1)))
    large = engine.add(Request(PROMPT, max_tokens=1000, sampling=Sampling(2.0, seed=2)))
    small = engine.add(Request(PROMPT, max_tokens=2))
    events: list[Event] = []
    while engine.busy:
        events += engine.step()
    assert started(events) == [first, large, small]
    assert all(engine.results(number)[0].error is None for number in (first, large, small))


def test_a_waiting_request_can_be_cancelled(bounded: BatchingEngine) -> None:
    numbers = [bounded.add(Request([BOS, i], max_tokens=250)) for i in range(6)]
    bounded.step()
    bounded.cancel(numbers[4])
    events = bounded.drain()
    assert [(e.request, e.finish_reason) for e in events if isinstance(e, Finished)] == [
        (numbers[4], FinishReason.CANCELLED)
    ]
    assert bounded.results(numbers[4])[0].new_tokens == []
    del numbers[4]
    for number in numbers:
        bounded.cancel(number)
    assert all(bounded.results(number)[0].finish_reason is FinishReason.CANCELLED for number in numbers)
    (late,) = bounded.run([Request(PROMPT, n=1, max_tokens=250)])
    assert late.error is None


def test_a_model_failure_does_not_end_waiting_requests(bounded: BatchingEngine, generate: Generate) -> None:
    numbers = [bounded.add(Request([BOS, i], max_tokens=250)) for i in range(5)]
    with failing_passes(bounded), pytest.raises(RuntimeError):
        bounded.step()
    bounded.run()
    assert all(bounded.results(n)[0].finish_reason is FinishReason.ERROR for n in numbers[:4])
    assert bounded.results(numbers[4])[0].new_tokens == generate([BOS, 4], 254)[:250]


def test_requests_that_can_never_fit_are_refused(
    bounded: BatchingEngine, model: Any, long_model: Any, vocabulary: Vocabulary
) -> None:
    for request in (Request(PROMPT, n=5, max_tokens=300), Request(PROMPT, beams=3, max_tokens=300)):
        with pytest.raises(ValueError, match="cannot fit"):
            bounded.add(request)
    assert not bounded.busy
    assert len(bounded.run([Request(PROMPT, n=4, max_tokens=300, sampling=Sampling(1.0))])) == 4
    assert len(bounded.run([Request(PROMPT, beams=2, n=2, max_tokens=300)])) == 2
    with pytest.raises(ValueError, match="at least 1024"):
        make_engine(model, vocabulary=vocabulary, cache_tokens=1023)
    long = make_engine(long_model, vocabulary=vocabulary, cache_tokens=FOUR)
    assert long.max_context == FOUR
    with pytest.raises(ValueError, match="the prompt has 1024 tokens; the model takes 1024"):
        long.add(Request([1] * 1024))
    (result,) = long.run([Request([1] * 1020, max_tokens=100, sampling=Sampling(2.0, seed=4))])
    assert len(result.tokens) == FOUR and result.finish_reason is FinishReason.LENGTH


def test_a_fork_without_room_ends_alone(model: Any, vocabulary: Vocabulary, generate: Generate) -> None:
    class Forker(Script):
        def pre(self, report: StepInput) -> PreResult:
            return fork(6) if len(self.reports) == 2 else PreResult(Verb.CONTINUE)

    runtime = ScriptedRuntime(script=lambda arg, prompt: Forker(anything()))
    engine = make_engine(model, runtime=runtime, vocabulary=vocabulary, cache_tokens=FOUR)
    forker = engine.add(Request(PROMPT, controller="script", max_tokens=252))
    mate = engine.add(Request(MATE, max_tokens=249))
    later = engine.add(Request(MATE, max_tokens=10))
    engine.run()
    results = engine.results(forker)
    errors = [result for result in results if result.finish_reason is FinishReason.ERROR]
    assert len(results) == 6 and len(errors) == 4, "there is room for one fork beside the three requests"
    assert all(isinstance(result.error, SpaceError) for result in errors)
    assert [r.new_tokens for r in results if r.error is None] == [generate(PROMPT, 252)] * 2
    assert engine.results(mate)[0].new_tokens == generate(MATE, 249)
    assert engine.results(later)[0].new_tokens == generate(MATE, 10)
    assert not runtime.live and not count_slots(engine)


def test_forks_without_room_copy_no_tokens(model: Any, vocabulary: Vocabulary) -> None:
    """A worker that has been broken out of may ask for thousands of forks of a long text."""

    class Forker(Script):
        def pre(self, report: StepInput) -> PreResult:
            return fork(500) if len(self.reports) == 3 else PreResult(Verb.CONTINUE)

    runtime: Any = ScriptedRuntime(f=lambda arg, prompt: Forker(anything()))
    engine = make_engine(model, vocabulary=vocabulary, runtime=runtime, cache_tokens=FOUR)
    engine.add(Request(PROMPT * 50, max_tokens=8, controller="f"))
    while engine.busy:
        engine.step()
    results = engine.results(0)
    refused = [result for result in results if result.error is not None]
    assert len(results) == 500 and len(refused) >= 490 and not runtime.live
    for result in refused:
        assert isinstance(result.error, SpaceError) and result.parent == 0
        assert result.text == "" and not result.new_tokens


def test_kept_prefixes_take_no_room_of_requests(model: Any, vocabulary: Vocabulary) -> None:
    keeper = make_engine(model, vocabulary=vocabulary, keep=8, cache_tokens=FOUR)
    keeper.run([Request([BOS, i], max_tokens=100) for i in range(4)])
    assert count_slots(keeper) > 0
    with CountingPasses(keeper) as fed:
        results = keeper.run([Request([i, BOS], max_tokens=250) for i in range(4)])
    assert max(map(len, fed.passes)) == 4
    assert all(result.error is None for result in results)


def test_logits_use_only_the_room_that_requests_leave(
    bounded: BatchingEngine, hf_model: Any, generate: Generate
) -> None:
    numbers = [bounded.add(Request([BOS, i], max_tokens=254)) for i in range(3)]
    bounded.step()
    histories = [[*range(150), i] for i in range(5)]
    with CountingPasses(bounded) as fed:
        rows = bounded.next_logits(histories)
    assert {len(counts) for counts in fed.passes} == {1}, "there is room for one history at a time"
    for history, row in zip(histories, rows, strict=True):
        want = hf_model(input_ids=torch.tensor([history]), use_cache=False).logits[0, -1]
        np.testing.assert_allclose(row[:258], want[:258].detach(), atol=1e-4, rtol=1e-4)
    numbers.append(bounded.add(Request([BOS, 3], max_tokens=254)))
    bounded.step()
    with pytest.raises(SpaceError, match="no room now"):
        bounded.next_logits(histories)
    bounded.run()
    for i, number in enumerate(numbers):
        assert bounded.results(number)[0].new_tokens == generate([BOS, i], 254)


def test_requests_go_on_while_logits_of_a_long_history_are_computed(
    long_model: Any, hf_model: Any, vocabulary: Vocabulary
) -> None:
    engine = make_engine(long_model, vocabulary=vocabulary, keep=2)
    number = engine.add(Request(MATE, max_tokens=20))
    history = [(13 * i) % 256 for i in range(1800)]
    pieces, steps = engine.logits_in_pieces([history, [*history[:1700], 5]]), 0
    with CountingPasses(engine) as fed:
        while True:
            try:
                next(pieces)
            except StopIteration as done:
                logits = done.value
                break
            engine.step()
            steps += 1
    assert steps >= 3
    assert max(map(sum, fed.passes)) <= 512
    want = hf_model(input_ids=torch.tensor([history]), use_cache=False).logits[0, -1]
    np.testing.assert_allclose(logits[0, :258], want[:258].detach(), atol=1e-3, rtol=1e-3)
    (alone,) = make_engine(long_model, vocabulary=vocabulary).run([Request(MATE, max_tokens=20)])
    engine.run()
    assert engine.results(number)[0].tokens == alone.tokens


def test_cancelled_logits_free_their_cache(long_model: Any, vocabulary: Vocabulary) -> None:
    engine = make_engine(long_model, vocabulary=vocabulary, cache_tokens=4 * FOUR)
    pieces = engine.logits_in_pieces([[1] * 3000])
    next(pieces)
    assert count_slots(engine) == 1
    pieces.close()
    assert not count_slots(engine)
    (result,) = engine.run([Request([2] * 4000, max_tokens=4000)])
    assert result.error is None and len(result.tokens) == 4 * FOUR


def test_logits_in_pieces_fail_when_a_pass_of_a_request_fails(
    long_model: Any, vocabulary: Vocabulary
) -> None:
    """The contents of the cache are unreliable after the failed pass."""
    engine = make_engine(long_model, vocabulary=vocabulary, keep=4)
    engine.add(Request(MATE))
    pieces = engine.logits_in_pieces([[1] * 3000])
    next(pieces)
    with failing_passes(engine), pytest.raises(RuntimeError):
        engine.step()
    with pytest.raises(AiciError, match="failed for another request"):
        next(pieces)
    assert not count_slots(engine)


def test_budget_claims_widens_and_releases() -> None:
    budget = Budget(100, uniform=True)
    first = budget.claim(2, 20)
    assert first is not None and budget.claim(2, 30) is None
    second = budget.claim(1, 30)
    assert second is not None and not budget.widen(first, 3) and first.sequences == 2
    assert budget.claimed == 3 * 30, "all slots are as long as the longest"
    budget.release(second)
    assert budget.widen(first, 5) and budget.claimed == 5 * 20 and budget.claim(1, 1) is None
    assert Budget(None, uniform=True).claim(1000, 1 << 40) is not None
    apart = Budget(100, uniform=False)
    assert apart.claimed == 0 and apart.claim(2, 20) and apart.claim(1, 30) and apart.claimed == 70
