"""Shares of a step: owners with many sequences do not slow down owners with few."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyaici.engines.batching.sampler import Choice
from pyaici.engines.batching.scheduler import fair_shares
from pyaici.engines.hf import Event, HfEngine, Request, Sampling, TokensAppended
from pyaici.engines.hf.runner import PASS_COST
from pyaici.tokens import Vocabulary
from tests.pyaici.engines.batching.scripted import Script, ScriptedRuntime, anything, fork, splice
from tests.pyaici.engines.batching.support import BOS, CountingCalls, make_model

_charge = HfEngine._charge
Generate = Callable[..., list[int]]
PROMPT = [BOS, 72, 101]
#: the most rows for which an owner with one token in each step must wait, on a CPU
MOST_ROWS = PASS_COST["cpu"] + 2


@pytest.fixture(autouse=True)
def timeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes measured times from the cost of steps, so that only tokens count."""
    monkeypatch.setattr(HfEngine, "_charge", lambda *_: None)


@pytest.fixture
def busy(model: Any, vocabulary: Vocabulary) -> HfEngine:
    """An engine in which one owner has forty sequences."""
    engine = HfEngine(model, vocabulary=vocabulary)
    engine.add(Request([BOS, 60], n=40, max_tokens=60, sampling=Sampling(2.0, seed=5), owner="bad"))
    engine.step()
    return engine


def steps(engine: HfEngine, count: int) -> list[list[Event]]:
    return [engine.step() for _ in range(count)]


def appended(steps: list[list[Event]]) -> list[int]:
    """Returns the request of each event with tokens."""
    return [event.request for events in steps for event in events if isinstance(event, TokensAppended)]


def rows_of_a_step(engine: HfEngine, model: Any) -> int:
    with CountingCalls(model) as calls:
        engine.step()
    return sum(rows * width for rows, width in calls.shapes)


@given(
    st.dictionaries(st.integers(), st.integers(1, 600), min_size=1, max_size=40),
    st.sampled_from(sorted(PASS_COST.values())),
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


def test_an_owner_alone_gets_the_whole_step(busy: HfEngine, model: Any) -> None:
    live = len(busy._pool.live)
    assert rows_of_a_step(busy, model) == live > MOST_ROWS


def test_many_sequences_of_one_owner_take_turns_beside_another(
    busy: HfEngine, model: Any, generate: Generate
) -> None:
    good = busy.add(Request(PROMPT, max_tokens=30, owner="good"))
    busy.step()
    turns: Counter[int] = Counter()
    with CountingCalls(model) as calls:
        for events in steps(busy, 29):
            rows = [event for event in events if isinstance(event, TokensAppended)]
            assert sum(event.request == good for event in rows) == 1, (
                "the other owner must get one token in every step"
            )
            turns.update(event.seq for event in rows if event.request != good)
    assert max(rows for rows, _ in calls.shapes) <= MOST_ROWS
    ended = {seq.id for seq in busy._pool._families[0].ended}
    counts = [count for seq, count in turns.items() if seq not in ended]
    assert len(counts) > MOST_ROWS and max(counts) - min(counts) <= 1 + len(ended)
    assert busy.results(good)[0].new_tokens == generate(PROMPT, 30)
    live = len(busy._pool.live)
    assert rows_of_a_step(busy, model) == live > MOST_ROWS, "the owner is alone again"


def test_the_time_to_sample_counts(busy: HfEngine, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sampling a token costs one owner as much as ten tokens of a pass, and the other as much as one."""

    def charge(engine: HfEngine, seqs: list[Any], choices: list[Choice], seconds: float) -> None:
        engine._runner.token_seconds = 0.001
        work = sum(choice.work for choice in choices)
        taken = sum(0.01 if choice.top_p < 1 else 0.001 for choice in choices)
        _charge(engine, seqs, choices, taken)
        for seq, choice in zip(seqs, choices, strict=True):
            assert seq.sampling == pytest.approx(1000 * taken * choice.work / work)

    monkeypatch.setattr(HfEngine, "_charge", charge)
    bad = busy.add(Request(PROMPT, n=20, max_tokens=50, sampling=Sampling(2.0, top_p=0.9), owner="worse"))
    busy.cancel(0)
    good = busy.add(Request(PROMPT, max_tokens=40, owner="good"))
    steps(busy, 3)
    with CountingCalls(model) as calls:
        requests = appended(steps(busy, 30))
    assert requests.count(good) == 30 and requests.count(bad) >= 30, "each must get a token in every step"
    assert max(rows for rows, _ in calls.shapes) <= 1 + MOST_ROWS // 8


def test_taking_turns_changes_no_text(busy: HfEngine, model: Any, vocabulary: Vocabulary) -> None:
    busy.add(Request(PROMPT, max_tokens=100, owner="good"))
    busy.run()
    request = Request([BOS, 60], n=40, max_tokens=60, sampling=Sampling(2.0, seed=5))
    alone = HfEngine(model, vocabulary=vocabulary).run([request])
    assert [result.tokens for result in busy.results(0)] == [result.tokens for result in alone]


def test_forks_of_a_controller_share_the_share_of_their_owner(model: Any, vocabulary: Vocabulary) -> None:
    class Forking(Script):
        def __init__(self) -> None:
            super().__init__(anything(), pres=[fork(16)])

    runtime = ScriptedRuntime(fork=lambda arg, prompt: Forking())
    engine = HfEngine(model, runtime=runtime, vocabulary=vocabulary)  # type: ignore[arg-type]
    for number in range(6):
        engine.add(Request([BOS, number], module="fork", max_tokens=40, owner="bad"))
    good = engine.add(Request(PROMPT, max_tokens=40, owner="good"))
    engine.step()
    with CountingCalls(model) as calls:
        requests = appended(steps(engine, 39))
    assert requests.count(good) == 39
    assert max(rows for rows, _ in calls.shapes) <= MOST_ROWS
    assert set(requests) == set(range(7))


@pytest.mark.parametrize("spliced", [False, True], ids=["prompt", "splice"])
def test_long_texts_are_fed_in_small_pieces_beside_others(vocabulary: Vocabulary, spliced: bool) -> None:
    model = make_model(max_position_embeddings=2048)
    text = [(7 * i) % 256 for i in range(60)]
    runtime = ScriptedRuntime(long=lambda arg, prompt: Script(splice(text)))
    engine = HfEngine(model, runtime=runtime, vocabulary=vocabulary)  # type: ignore[arg-type]
    good = engine.add(Request(PROMPT, max_tokens=60, owner="good"))
    engine.step()
    module = "long" if spliced else None
    prompt = [BOS] if spliced else [BOS, *text * 10]
    engine.add(Request(prompt, module=module, max_tokens=1000, owner="bad"))
    with CountingCalls(model) as calls:
        requests = appended(steps(engine, 50))
    assert requests.count(good) == 50
    # shorter feeds of a pass are padded if that costs less than another pass
    assert max(rows * width for rows, width in calls.shapes) <= 2 * MOST_ROWS
    assert 1 in requests, "the request with the long text must make progress"


def test_a_beam_search_beside_other_requests_has_the_same_results(model: Any, vocabulary: Vocabulary) -> None:
    request = Request(PROMPT, beams=8, n=8, max_tokens=20, owner="search")
    alone = HfEngine(model, vocabulary=vocabulary).run([request])
    engine = HfEngine(model, vocabulary=vocabulary)
    for number in range(8):
        engine.add(Request([BOS, number], max_tokens=100, sampling=Sampling(2.0), owner="search"))
    number = engine.add(request)
    engine.add(Request(PROMPT, max_tokens=200, owner="good"))
    engine.run()
    beside = engine.results(number)
    assert [result.tokens for result in beside] == [result.tokens for result in alone]


def test_logits_are_computed_in_small_pieces_while_requests_run(model: Any, vocabulary: Vocabulary) -> None:
    engine = HfEngine(model, vocabulary=vocabulary)
    engine.add(Request(PROMPT, max_tokens=100))
    history = [(13 * i) % 256 for i in range(200)]
    pieces = engine.logits_in_pieces([history])
    with CountingCalls(model) as calls:
        for _ in range(5):
            next(pieces)
            engine.step()
    assert max(rows * width for rows, width in calls.shapes) <= MOST_ROWS
    pieces.close()
