"""`VllmEngine`: controllers have the same results as on Transformers, with all verbs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aicirt.contract.errors import ArgumentError, ProtocolError, ResultError, UnknownControllerError
from pyaici import VllmEngine
from pyaici.bundled import find_controller
from pyaici.client.runtime import Runtime
from pyaici.engines.engine import (
    Backtracked,
    Event,
    Finished,
    FinishReason,
    Forked,
    GenerationResult,
    Log,
    Origin,
    Request,
    Sampling,
    Started,
    Suspended,
    TokensAppended,
    VariablesChanged,
)
from pyaici.scripting.script import read_request
from pyaici.toolchain import build_controller
from tests.pyaici.engines.vllm.requests import FRANCE, counter
from tests.thorough import also, cases

pytestmark = pytest.mark.slow

ACROBAT = Path(__file__).resolve().parents[3] / "guests" / "acrobat.cpp"
PROMPTS = ["Once upon a time", FRANCE, "def f(x):", "Dear Sir,"]
REQUESTS = [Request(PROMPTS[i % 4], controller="acrobat", arg=str(i), max_tokens=50) for i in range(20)]


@pytest.fixture(autouse=True)
def uploaded(guests: Callable[..., None]) -> None:
    guests("acrobat", "writer")


def summary(results: list[GenerationResult]) -> list[Any]:
    """Returns the parts of results that do not depend on the numbers of sequences."""
    first = min(r.request for r in results)
    return sorted(
        (
            r.request - first,
            r.tokens,
            [o.value for o in r.origins],
            r.finish_reason.value,
            r.log,
            str(r.error),
        )
        for r in results
    )


@pytest.fixture(scope="session")
def expected(hf: Any, guests: Callable[..., None]) -> list[Any]:
    """The results on Transformers, in which all verbs occur."""
    guests("acrobat")
    events: list[Event] = []
    results = hf.run(REQUESTS, events.append)
    kinds = {type(event) for event in events}
    assert kinds >= {Backtracked, Forked, Suspended, TokensAppended, Log}
    assert {r.finish_reason for r in results} >= {FinishReason.STOP, FinishReason.ERROR}
    assert any(r.prompt_tokens < 3 for r in results), "no controller has removed a part of its prompt"
    return summary(results)


@pytest.fixture
def engine(llm: Any) -> VllmEngine:
    """An engine that uses vLLM's for all its requests."""
    return VllmEngine(llm)


@pytest.mark.parametrize(
    "configuration", ["async", "async-preempted", *also("processes", "sync", "async-no-prefix-cache")]
)
def test_every_verb_has_the_same_results_as_on_transformers(
    llm: Any, engine: VllmEngine, expected: list[Any], configuration: str
) -> None:
    # an engine in processes of its own has two seats, and is slow
    most = cases(6, len(REQUESTS)) if configuration == "processes" else len(REQUESTS)
    preempted = counter(llm, "num_preemptions")
    events: list[Event] = []
    results = engine.run(REQUESTS[:most], events.append)
    assert summary(results) == [each for each in expected if each[0] < most]
    assert not engine.busy
    replay(events, results)
    if configuration == "async-preempted":
        assert counter(llm, "num_preemptions") > preempted


def replay(events: list[Event], results: list[GenerationResult]) -> None:
    """Checks that the events add up to the results."""
    tokens: dict[int, list[int]] = {}
    texts: dict[int, str] = {}
    ended: dict[int, FinishReason] = {}
    for event in events:
        assert event.seq not in ended
        if isinstance(event, Started):
            tokens[event.seq], texts[event.seq] = list(event.tokens), event.prompt
        elif isinstance(event, TokensAppended):
            tokens[event.seq] += event.tokens
            texts[event.seq] += event.text
        elif isinstance(event, Backtracked):
            del tokens[event.seq][len(tokens[event.seq]) - event.count :]
            assert texts[event.seq].endswith(event.text)
            texts[event.seq] = texts[event.seq].removesuffix(event.text)
        elif isinstance(event, Forked):
            for child in event.children:
                tokens[child], texts[child] = tokens[event.seq][:], texts[event.seq]
        elif isinstance(event, Finished):
            ended[event.seq] = event.finish_reason
    assert {r.seq: r.tokens for r in results} == tokens
    assert {r.seq: r.finish_reason for r in results} == ended
    assert all(texts[r.seq].endswith(r.text) for r in results if r.text.isascii())


def test_a_fork_beyond_max_sequences_fails_with_its_parent(llm: Any) -> None:
    events: list[Event] = []
    source = "from aici import fork, gen\nasync def main():\n    await fork(3)\n    await gen(max_tokens=40)"
    module, arg = read_request({"language": "python", "source": source})
    results = VllmEngine(llm, max_sequences=2).run([Request(FRANCE, module, arg)], events.append)
    assert [type(result.error) for result in results] == [ResultError] * 3
    assert [result.parent for result in results] == [None, results[0].seq, results[0].seq]
    replay(events, results)


def test_requests_without_a_controller_equal_transformers(engine: VllmEngine, reference: Any) -> None:
    (result,) = engine.run([Request(FRANCE, max_tokens=12, logprobs=True)])
    assert result.new_tokens == reference([FRANCE], 12)[0]
    assert result.finish_reason is FinishReason.LENGTH and result.origins[-12:] == [Origin.SAMPLED] * 12
    assert all(-20 < value <= 0 for value in result.logprobs[-12:])
    assert result.text and result.first_token_seconds <= result.seconds


def test_variables_are_reported_in_events_and_results(engine: VllmEngine) -> None:
    events: list[Event] = []
    requests = [
        Request(FRANCE, "writer", "!omfbs"),
        Request(FRANCE, "writer", "aom", max_tokens=3),
        Request(FRANCE, "writer", "at", owner="ann"),
        Request(FRANCE, max_tokens=2),
        Request(FRANCE, "writer", "a", owner="x" * 65),
    ]
    *results, refused = engine.run(requests, events.append)
    everything = {
        "prompt": b"read",
        "post": b"done",
        "mid": b"last",
        "first": b"here",
        "second": b"here",
        "\\xff_\u00e9": b"odd",
    }
    expected = [everything, everything, {"post": b"done"}, {"mid": b"last"}, {}]
    assert [result.variables for result in results] == expected
    reported: dict[int, dict[str, bytes]] = {}
    for event in events:
        if isinstance(event, VariablesChanged):
            reported.setdefault(event.request, {}).update(event.values)
    assert reported == {result.request: result.variables for result in results if result.variables}
    assert isinstance(refused.error, ProtocolError) and "an owner's name has" in str(refused.error)


def allowed(events: list[Event]) -> list[list[tuple[str, int | None]]]:
    """Returns the origin and the number of allowed tokens of each token, by request."""
    found: dict[int, list[tuple[str, int | None]]] = {}
    for event in events:
        if isinstance(event, TokensAppended):
            found.setdefault(event.request, []).extend(
                [(event.origin.value, event.allowed)] * len(event.tokens)
            )
    return [found[number] for number in sorted(found)]


def test_numbers_of_allowed_tokens_equal_those_on_transformers(engine: VllmEngine, hf: Any) -> None:
    requests = [
        Request(FRANCE, "regex", "( [a-z]{1,4}){3} over [0-9]", max_tokens=20, count_allowed=True),
        Request(FRANCE, "regex", "[ab]", max_tokens=3),
    ]
    expected: list[Event] = []
    hf.run(requests, expected.append)
    events: list[Event] = []
    engine.run(requests, events.append)
    assert allowed(events) == allowed(expected)
    assert any(count is not None and count > 1 for _, count in allowed(events)[0])
    assert all(count is None for _, count in allowed(events)[1])


def test_arguments_are_passed_as_json(engine: VllmEngine) -> None:
    requests = [
        Request(FRANCE, "json_schema", {"enum": ["red"]}, max_tokens=9),
        Request(FRANCE, "choice", ["green"], max_tokens=9),
    ]
    assert [result.text for result in engine.run(requests)] == ['"red"', "green"]


def test_a_removed_bundled_controller_is_uploaded_again(engine: VllmEngine, runtime: Runtime) -> None:
    request = Request(FRANCE, "choice", '["a", "b"]', max_tokens=5)
    (before,) = engine.run([request])
    assert runtime.remove(runtime.upload(find_controller("choice")).id, force=True)
    (after,) = engine.run([request])
    assert after.error is None and after.text == before.text in ("a", "b")


def test_several_samples_repeat_with_the_same_seed_and_differ(engine: VllmEngine) -> None:
    sampling = Sampling(temperature=1.5, seed=7)
    request = Request("My favourite", "regex", r" [a-z]{4,9} [a-z]{4,9}\.", sampling, n=4, logprobs=True)
    first, again = (engine.run([request]) for _ in range(2))
    assert [r.text for r in first] == [r.text for r in again] and len({r.text for r in first}) > 1
    for result in first:
        assert result.finish_reason is FinishReason.STOP
        for origin, value in zip(result.origins, result.logprobs, strict=True):
            assert (value == value) == (origin is Origin.SAMPLED), (
                "only sampled tokens have a log-probability"
            )


def test_forks_have_the_log_probabilities_of_their_parent(engine: VllmEngine) -> None:
    requests = [
        Request(request.prompt, request.controller, request.arg, max_tokens=50, logprobs=True)
        for request in REQUESTS
    ]
    results = [result for result in engine.run(requests) if result.parent is not None]
    assert len(results) > 20
    for result in results:
        known = [value == value for value in result.logprobs]
        assert known == [origin is Origin.SAMPLED for origin in result.origins]
        assert all(value <= 0 for value in result.logprobs if value == value)


def test_invalid_requests_fail_alone(engine: VllmEngine) -> None:
    with pytest.raises(ValueError, match="beam search"):
        engine.add(Request(FRANCE, beams=2))
    with pytest.raises(ValueError, match="the prompt has 600 tokens; the model takes 512"):
        engine.add(Request([5] * 600))
    with pytest.raises(ValueError, match="the name of an owner"):
        engine.add(Request(FRANCE, "regex", "a", owner=""))
    assert not engine.busy and engine.drain() == []
    unknown, refused, fine = engine.run(
        [Request(FRANCE, "rejex"), Request(FRANCE, "regex", "[a-"), Request(FRANCE, max_tokens=2)]
    )
    assert isinstance(unknown.error, UnknownControllerError)
    assert "no controller is called 'rejex'" in str(unknown.error)
    assert isinstance(refused.error, ArgumentError)
    assert fine.error is None
    assert unknown.finish_reason is refused.finish_reason is FinishReason.ERROR


def test_more_forks_than_max_sequences_are_an_error_with_advice(llm: Any) -> None:
    engine = VllmEngine(llm, max_sequences=2)
    results = engine.run(REQUESTS[:1])
    errors = [result.error for result in results if result.error is not None]
    assert any(isinstance(error, ResultError) and "ask for more with n" in str(error) for error in errors)


def test_cancelling_a_request_ends_all_its_forks(engine: VllmEngine) -> None:
    number, other = engine.add(Request(FRANCE, "acrobat", "0")), engine.add(Request(FRANCE, max_tokens=20))
    events: list[Event] = []
    while not any(isinstance(event, Forked) for event in events):
        events += engine.step()
    with pytest.raises(ValueError, match="still has sequences"):
        engine.results(number)
    engine.cancel(number)
    while engine.busy:
        events += engine.step()
    events += engine.drain()
    reasons = [r.finish_reason for r in engine.results(number)]
    assert len(reasons) > 1 and FinishReason.CANCELLED in reasons
    assert engine.results(other)[0].finish_reason is FinishReason.LENGTH
    with engine:
        engine.add(Request(FRANCE, "acrobat", "3"))
        engine.step()
    assert not engine.busy


@pytest.mark.parametrize("configuration", ["changing-daemon", *also("sync-changing-daemon")])
def test_late_answers_change_no_seeded_token(
    engine: VllmEngine, change_daemon: Callable[..., Runtime], tmp_path: Path
) -> None:
    """A discarded token draws no random number: its answer is late, or its pass follows such a one."""
    guest = build_controller(ACROBAT.with_name("guest.c"), tmp_path / "guest.wasm").path
    runtime = change_daemon(limits={"mid_ms": 60_000, "step_deadline_ms": 50, "max_late_steps": 1000})
    module = runtime.upload(guest).id
    sampling = Sampling(temperature=2.0, seed=3, ignore_eos=True)
    asked = [Request(FRANCE, module, arg, sampling, max_tokens=12) for arg in ("ok", "mid_slow 300")]
    (quick,), (slow,) = (engine.run([request]) for request in asked)
    assert sum(process.get("counters", {}).get("late", 0) for process in runtime.health()["workers"])
    assert quick.tokens == slow.tokens and len({*quick.tokens} - {20}) > 2, (quick, slow)
