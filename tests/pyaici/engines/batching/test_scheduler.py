"""Shares of a step: owners with many sequences do not slow down owners with few."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicirt.contract.abi import Verb
from pyaici.client.results import Look, PreResult
from pyaici.engines.batching.engine import BatchingEngine
from pyaici.engines.batching.sampler import Choice, describe_next
from pyaici.engines.batching.scheduler import fair_shares
from pyaici.engines.engine import Event, Finished, Request, Sampling, TokensAppended
from pyaici.tokens import Vocabulary
from tests.pyaici.engines.batching.scripted import Script, ScriptedRuntime, anything, fork, splice
from tests.pyaici.engines.batching.support import BOS, CountingPasses, make_engine

_charge = BatchingEngine._charge
Generate = Callable[..., list[int]]
PROMPT = [BOS, 72, 101]


def most_rows(engine: BatchingEngine) -> int:
    """Returns the most rows for which an owner with one token in each step must wait."""
    return engine._runner.pass_cost + 2


@pytest.fixture(autouse=True)
def timeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes measured times from the cost of steps, so that only tokens count."""
    monkeypatch.setattr(BatchingEngine, "_charge", lambda *_: None)


@pytest.fixture
def busy(model: Any, vocabulary: Vocabulary) -> BatchingEngine:
    """An engine in which one owner has forty sequences."""
    engine = make_engine(model, vocabulary=vocabulary, cache_tokens=8192)
    engine.add(Request([BOS, 60], n=40, max_tokens=60, sampling=Sampling(2.0, seed=5), owner="bad"))
    engine.step()
    return engine


def steps(engine: BatchingEngine, count: int) -> list[list[Event]]:
    return [engine.step() for _ in range(count)]


def appended(steps: list[list[Event]]) -> list[int]:
    """Returns the request of each event with tokens."""
    return [event.request for events in steps for event in events if isinstance(event, TokensAppended)]


def tokens_of_a_step(engine: BatchingEngine) -> int:
    with CountingPasses(engine) as fed:
        engine.step()
    return sum(map(sum, fed.passes))


@given(
    st.dictionaries(st.integers(), st.integers(1, 600), min_size=1, max_size=40),
    st.sampled_from([1, 4, 12, 256]),
)
def test_shares_are_fair_and_bounded(wanted: dict[int, int], pass_cost: int) -> None:
    shares = fair_shares(wanted, pass_cost)
    if len(wanted) == 1:
        assert shares == wanted
        return
    least = min(wanted.values())
    assert all(least <= shares[owner] <= wanted[owner] + 1e-9 for owner in wanted)
    alone, all_owners = pass_cost + least, pass_cost + sum(shares.values())
    assert all_owners <= max(2 * alone, pass_cost + least * len(wanted)) + 1e-9
    cut = {share for owner, share in shares.items() if share < wanted[owner] - 1e-9}
    assert not cut or max(cut) - min(cut) < 1e-9, (
        "all owners that get less than wanted must get the same share"
    )
    assert not cut or max(shares.values()) <= max(cut) + 1e-9
    if not cut:
        assert sum(shares.values()) == sum(wanted.values())


def test_an_owner_alone_gets_the_whole_step(busy: BatchingEngine) -> None:
    live = len(busy._pool.live)
    assert tokens_of_a_step(busy) == live > most_rows(busy)


def test_many_sequences_of_one_owner_take_turns_beside_another(
    busy: BatchingEngine, generate: Generate
) -> None:
    good = busy.add(Request(PROMPT, max_tokens=30, owner="good"))
    busy.step()
    turns: Counter[int] = Counter()
    ended: set[int] = set()
    with CountingPasses(busy) as fed:
        for events in steps(busy, 29):
            ended |= {event.seq for event in events if isinstance(event, Finished) and event.request != good}
            rows = [event for event in events if isinstance(event, TokensAppended)]
            assert sum(event.request == good for event in rows) == 1, (
                "the other owner must get one token in every step"
            )
            turns.update(event.seq for event in rows if event.request != good)
    assert max(map(len, fed.passes)) <= most_rows(busy)
    counts = [count for seq, count in turns.items() if seq not in ended]
    assert len(counts) > most_rows(busy) and max(counts) - min(counts) <= 1 + len(ended)
    assert busy.results(good)[0].new_tokens == generate(PROMPT, 30)
    live = len(busy._pool.live)
    assert tokens_of_a_step(busy) == live > most_rows(busy), "the owner is alone again"


def test_the_time_to_sample_counts(busy: BatchingEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sampling a token costs one owner as much as ten tokens of a pass, and the other as much as one."""

    def charge(engine: BatchingEngine, seqs: list[Any], choices: list[Choice], seconds: float) -> None:
        engine._runner.token_seconds = 0.001
        work = sum(choice.work for choice in choices)
        taken = sum(0.01 if choice.top_p < 1 else 0.001 for choice in choices)
        _charge(engine, seqs, choices, taken)
        for seq, choice in zip(seqs, choices, strict=True):
            assert seq.sampling == pytest.approx(1000 * taken * choice.work / work)

    monkeypatch.setattr(BatchingEngine, "_charge", charge)
    bad = busy.add(Request(PROMPT, n=20, max_tokens=50, sampling=Sampling(2.0, top_p=0.9), owner="worse"))
    busy.cancel(0)
    good = busy.add(Request(PROMPT, max_tokens=40, owner="good"))
    steps(busy, 3)
    with CountingPasses(busy) as fed:
        requests = appended(steps(busy, 30))
    assert requests.count(good) == 30 and requests.count(bad) >= 30, "each must get a token in every step"
    assert max(map(len, fed.passes)) <= 2


def test_the_time_to_answer_looks_counts(
    model: Any, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look costs one owner as much as ten tokens of a pass."""
    runtime: Any = ScriptedRuntime(looks=lambda arg, prompt: Script(Look(Verb.LOOK, top_logprobs=2)))
    engine = make_engine(model, runtime=runtime, vocabulary=vocabulary)
    cpu, real = [0.0], describe_next

    def slow(*args: Any) -> list[tuple[int, float]]:
        engine._runner.token_seconds = 0.001
        cpu[0] += 0.01
        return real(*args)

    monkeypatch.setattr("pyaici.engines.batching.pool.describe_next", slow)
    monkeypatch.setattr(time, "thread_time", lambda: cpu[0])
    for number in range(6):
        engine.add(Request([BOS, number], controller="looks", max_tokens=40, owner="bad"))
    good = engine.add(Request(PROMPT, max_tokens=40, owner="good"))
    steps(engine, 3)
    before = cpu[0]
    assert appended(steps(engine, 30)).count(good) == 30
    assert cpu[0] - before <= 30 * 2 * 0.01 + 1e-6, "in a step, one sequence looks, at most twice"


def test_taking_turns_changes_no_text(busy: BatchingEngine, model: Any, vocabulary: Vocabulary) -> None:
    busy.add(Request(PROMPT, max_tokens=100, owner="good"))
    busy.run()
    request = Request([BOS, 60], n=40, max_tokens=60, sampling=Sampling(2.0, seed=5))
    alone = make_engine(model, vocabulary=vocabulary, cache_tokens=8192).run([request])
    assert [result.tokens for result in busy.results(0)] == [result.tokens for result in alone]


def test_forks_of_a_controller_share_the_share_of_their_owner(model: Any, vocabulary: Vocabulary) -> None:
    class Forking(Script):
        def __init__(self) -> None:
            super().__init__(anything(), pres=[fork(16)])

    runtime = ScriptedRuntime(fork=lambda arg, prompt: Forking())
    engine = make_engine(model, runtime=runtime, vocabulary=vocabulary)  # type: ignore[arg-type]
    for number in range(6):
        engine.add(Request([BOS, number], controller="fork", max_tokens=40, owner="bad"))
    good = engine.add(Request(PROMPT, max_tokens=40, owner="good"))
    engine.step()
    with CountingPasses(engine) as fed:
        requests = appended(steps(engine, 39))
    assert requests.count(good) == 39
    assert max(map(len, fed.passes)) <= most_rows(engine)
    assert set(requests) == set(range(7))


@pytest.mark.parametrize("spliced", [False, True], ids=["prompt", "splice"])
def test_long_texts_are_fed_in_small_pieces_beside_others(
    long_model: Any, vocabulary: Vocabulary, spliced: bool
) -> None:
    text = [(7 * i) % 256 for i in range(60)]
    runtime = ScriptedRuntime(long=lambda arg, prompt: Script(splice(text)))
    engine = make_engine(long_model, runtime=runtime, vocabulary=vocabulary)  # type: ignore[arg-type]
    good = engine.add(Request(PROMPT, max_tokens=60, owner="good"))
    engine.step()
    module = "long" if spliced else None
    length = 1 if spliced else 45 * (most_rows(engine) - 1)
    prompt = [BOS, *text * 10][:length]
    engine.add(Request(prompt, controller=module, max_tokens=1000, owner="bad"))
    with CountingPasses(engine) as fed:
        requests = appended(steps(engine, 50))
    assert requests.count(good) == 50
    # shorter feeds of a pass are padded if that costs less than another pass
    assert max(map(sum, fed.passes)) <= 2 * most_rows(engine)
    assert 1 in requests, "the request with the long text must make progress"


def test_a_beam_search_beside_other_requests_has_the_same_results(model: Any, vocabulary: Vocabulary) -> None:
    request = Request(PROMPT, beams=8, n=8, max_tokens=20, owner="search")
    alone = make_engine(model, vocabulary=vocabulary).run([request])
    engine = make_engine(model, vocabulary=vocabulary)
    for number in range(8):
        engine.add(Request([BOS, number], max_tokens=100, sampling=Sampling(2.0), owner="search"))
    number = engine.add(request)
    engine.add(Request(PROMPT, max_tokens=200, owner="good"))
    engine.run()
    beside = engine.results(number)
    assert [result.tokens for result in beside] == [result.tokens for result in alone]


def test_logits_are_computed_in_small_pieces_while_requests_run(model: Any, vocabulary: Vocabulary) -> None:
    engine = make_engine(model, vocabulary=vocabulary)
    engine.add(Request(PROMPT, max_tokens=100))
    engine.step()
    history = [(13 * i) % 256 for i in range(200)]
    pieces = engine.logits_in_pieces([history])
    with CountingPasses(engine) as fed:
        for _ in range(5):
            next(pieces)
            engine.step()
    assert max(map(sum, fed.passes)) <= engine._scheduler.prompt_tokens()
    pieces.close()


def bytecodes_of_a_step(engine: BatchingEngine) -> int:
    """Returns how many bytecodes of this package a step runs."""
    found = 0

    def count(_frame: FrameType, event: str, _arg: object) -> Any:
        nonlocal found
        found += event == "opcode"
        return count

    def trace(frame: FrameType, _event: str, _arg: object) -> Any:
        if "/pyaici/engines/" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return count

    sys.settrace(trace)
    try:
        engine.step()
    finally:
        sys.settrace(None)
    return found


def test_sequences_that_wait_add_no_work_to_the_steps_of_others(model: Any, vocabulary: Vocabulary) -> None:
    waits = PreResult(Verb.SUSPEND, waits=True)
    runtime = ScriptedRuntime(
        waiting=lambda arg, prompt: Script(anything(), pres=[waits]),
        going=lambda arg, prompt: Script(anything()),
    )
    engine = make_engine(model, runtime=runtime, vocabulary=vocabulary, cache_tokens=16384)
    engine.add(Request(PROMPT, controller="going", max_tokens=200))
    counts = []
    for more in (2, 60):
        for _ in range(more):
            engine.add(Request(PROMPT, controller="waiting", max_tokens=1))
        while sum(seq.parked is not None for seq in engine._pool.live.values()) < len(engine._pool.live) - 1:
            engine.step()
        engine.step()
        counts.append(bytecodes_of_a_step(engine))
    assert counts[0] == counts[1], counts
