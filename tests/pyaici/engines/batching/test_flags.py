"""End tokens that controllers hold, and callbacks that they skip, with a real (tiny) model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyaici.client.results import MidResult
from pyaici.client.runtime import Runtime
from pyaici.engines.engine import Event, FinishReason, GenerationResult, Request, Sampling, TokensAppended
from pyaici.tokens import Vocabulary
from pyaici.toolchain import build_controller
from tests.pyaici.engines.batching.scripted import STOP, Script, ScriptedRuntime, allow, anything, splice
from tests.pyaici.engines.batching.support import BOS, EOS, make_engine

PROMPT = [BOS, 72, 101, 108]
MATE = [BOS, 1, 2, 3, 4, 5, 6]
GUEST = Path(__file__).resolve().parents[3] / "guests" / "flags.c"


def held(answer: MidResult) -> MidResult:
    return replace(answer, hold_end=True)


@pytest.fixture
def play(model: Any, vocabulary: Vocabulary) -> Callable[..., Any]:
    """Runs a script of results of mid_process."""

    def run(
        *mids: MidResult, on_event: Callable[[Event], None] | None = None, **request: Any
    ) -> tuple[list[GenerationResult], ScriptedRuntime]:
        runtime = ScriptedRuntime(script=lambda arg, prompt: Script(*mids))
        engine = make_engine(model, runtime=runtime, vocabulary=vocabulary)
        results = engine.run(
            [Request(PROMPT, controller="script", **({"max_tokens": 8} | request))], on_event
        )
        assert not runtime.live, "a controller was not freed"
        return results, runtime

    return run


def test_a_held_end_token_can_be_removed_and_the_sequence_goes_on(play: Any, generate: Any) -> None:
    events: list[Event] = []
    (result,), runtime = play(
        held(allow(EOS)), splice(b"then", 1), anything(), on_event=events.append, logprobs=True
    )
    assert result.tokens[: len(PROMPT) + 4] == [*PROMPT, *b"then"]
    assert result.new_tokens[4:] == generate([*PROMPT, *b"then"], 4), "the removed end token had an effect"
    first, second = runtime.ever[100].reports[1:3]
    assert (list(first.tokens), first.sampled, first.final) == ([EOS], True, False)
    assert first.logprob <= 0 and 0 < first.allowed_mass < 1
    assert (list(second.tokens), second.backtrack) == ([*b"then"], 1)
    (appended, *_) = [event for event in events if isinstance(event, TokensAppended)]
    assert (appended.tokens, appended.text, len(appended.logprobs or ())) == ([EOS], "", 1)


def test_a_held_end_token_may_stay(play: Any, generate: Any) -> None:
    (result,), _ = play(held(allow(EOS)), splice(b"ab"), anything())
    assert result.new_tokens == [EOS, *b"ab", *generate([*PROMPT, EOS, *b"ab"], 5)]
    assert result.text.startswith("ab")


@pytest.mark.parametrize("answer", [allow(EOS), splice([65, EOS])], ids=["sample", "splice"])
def test_holding_applies_to_one_result(play: Any, answer: MidResult) -> None:
    """An end token that is not held ends the sequence. Holding one end token does not hold the next."""
    (result,), _ = play(answer, anything())
    assert (result.finish_reason, result.new_tokens[-1]) == (FinishReason.EOS, EOS) and len(
        result.new_tokens
    ) <= 2
    (result,), runtime = play(held(answer), answer, anything())
    assert result.finish_reason is FinishReason.EOS
    assert result.new_tokens == 2 * [*answer.ff_tokens] if answer.ff_tokens else [EOS, EOS]
    assert [report.final for report in runtime.ever[100].reports] == [False, False, True]
    (result,), _ = play(held(allow(65)), allow(EOS))
    assert (result.new_tokens, result.finish_reason) == ([65, EOS], FinishReason.EOS)


def test_the_controller_may_stop_after_a_held_end_token(play: Any) -> None:
    (result,), _ = play(held(allow(EOS)), STOP)
    assert (result.new_tokens, result.finish_reason) == ([EOS], FinishReason.STOP)


@pytest.mark.parametrize("answer", [allow(EOS), splice([65, EOS])], ids=["sample", "splice"])
def test_a_held_end_token_at_the_token_limit_ends_the_sequence(play: Any, answer: MidResult) -> None:
    """The controller still receives the token."""
    (result,), runtime = play(held(answer), max_tokens=len(answer.ff_tokens) or 1)
    assert (result.new_tokens[-1], result.finish_reason) == (EOS, FinishReason.LENGTH)
    last = runtime.ever[100].reports[-1]
    assert last.tokens[-1] == EOS and last.final


def test_an_end_token_within_a_splice_does_not_end_the_sequence(play: Any) -> None:
    for answer in (splice([EOS, 65]), held(splice([EOS, 65]))):
        (result,), _ = play(answer, STOP)
        assert (result.new_tokens, result.finish_reason) == ([EOS, 65], FinishReason.STOP)


def test_beams_hold_their_end_tokens(play: Any) -> None:
    results, _ = play(held(allow(EOS)), allow(65), allow(EOS), beams=2, n=2)
    assert [(result.new_tokens, result.finish_reason) for result in results] == [
        ([EOS, 65, EOS], FinishReason.EOS)
    ]
    (result,), _ = play(held(allow(EOS)), beams=2, max_tokens=1)
    assert (result.new_tokens, result.finish_reason) == ([EOS], FinishReason.LENGTH)


def test_holding_applies_to_one_sequence_of_a_batch(model: Any, vocabulary: Vocabulary) -> None:
    """Only one of two sequences has a controller that holds its end token."""
    scripts = iter([Script(held(allow(EOS)), allow(70), STOP), Script(allow(EOS))])
    runtime = ScriptedRuntime(script=lambda arg, prompt: next(scripts))
    engine = make_engine(model, runtime=runtime, vocabulary=vocabulary)
    first, second = engine.run([Request(PROMPT, controller="script") for _ in range(2)])
    assert (first.new_tokens, first.finish_reason) == ([EOS, 70], FinishReason.STOP)
    assert (second.new_tokens, second.finish_reason) == ([EOS], FinishReason.EOS)


def test_logprobs_are_not_computed_where_post_process_is_skipped(play: Any) -> None:
    def known(*answers: MidResult, **request: Any) -> list[bool]:
        (result,), runtime = play(*answers, STOP, **request)
        reported = [report.logprob == report.logprob for report in runtime.ever[100].reports[1:]]
        assert reported == [value == value for value in result.logprobs[len(PROMPT) :]]
        return reported

    skipping = replace(anything(), skip_post=True)
    assert known(skipping, anything(), skipping) == [False, True, False]
    assert known(replace(anything(top_logprobs=2), skip_post=True), skipping) == [True, False]
    assert known(skipping, skipping, logprobs=True) == [True, True]


# -- with the real runtime ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    wasm = build_controller(GUEST, tmp_path_factory.mktemp("flags") / "flags.wasm").path
    # a virtual machine charges a guest for time that its host takes away
    with Runtime(workers=1, limits={"pre_ms": 50, "post_ms": 50}) as runtime:
        runtime.tag(runtime.upload(wasm).id, "flags")
        yield runtime


def test_guests_hold_end_tokens(runtime: Runtime, model: Any, vocabulary: Vocabulary, generate: Any) -> None:
    engine = make_engine(model, runtime=runtime, vocabulary=vocabulary)
    results = engine.run(
        [
            *(Request(PROMPT, "flags", arg, max_tokens=6) for arg in ("e1b0a0", "e0", "d1s0x0", "o0e7b6a6")),
            Request(MATE, max_tokens=12),
        ]
    )
    texts = [bytes(token for token in result.new_tokens if token < 256) for result in results]
    after = bytes(generate([*PROMPT, *b"x"], 5))
    assert [result.finish_reason for result in results[1:3]] == [FinishReason.EOS, FinishReason.STOP]
    assert texts[:3] == [b"x" + after, b"", b"x"]
    assert results[2].new_tokens == [EOS, *b"x"]
    assert results[3].new_tokens[1:2] == [*b"x"] and results[3].backtracked == 1
    assert results[4].new_tokens == generate(MATE, 12)


def test_skipping_callbacks_changes_no_token(runtime: Runtime, model: Any, vocabulary: Vocabulary) -> None:
    """Runs guests whose results depend on everything that they receive, with and without flags that skip."""
    # there must be room for all forks, which come in any order
    engine = make_engine(model, runtime=runtime, vocabulary=vocabulary, cache_tokens=8192)
    found: list[Any] = []
    called: list[int] = []
    for mode in "#+":
        results = engine.run(
            [
                Request(PROMPT, "flags", f"{mode}{seed}", sampling=Sampling(1.0, seed=seed), max_tokens=24)
                for seed in range(12)
            ]
        )
        assert len(results) > 12, "no guest has forked"
        # forks of different sequences in one step are numbered in the order in which workers answer
        found.append(
            sorted(
                (result.request % 12, result.new_tokens, result.finish_reason.value, str(result.error))
                for result in results
            )
        )
        log = "".join(result.log for result in results)
        called += [log.count("pre"), log.count("post")]
    assert found[0] == found[1]
    assert called[2] < 0.8 * called[0] and called[3] < 0.8 * called[1]
