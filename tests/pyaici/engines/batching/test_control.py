"""Every verb of a controller, with edge cases: scripted controllers and a real (tiny) model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from aicirt.contract.abi import Verb
from aicirt.contract.errors import (
    AiciError,
    EmptyMaskError,
    ForkLimitError,
    ResultError,
    SpaceError,
    TimeLimitError,
    WorkerDiedError,
)
from aicirt.contract.messages import StepInput, Truncation
from pyaici import LlamaModel
from pyaici.client.results import MidResult, PreResult
from pyaici.engines import record
from pyaici.engines.batching.engine import ADDED, Phase
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
    Suspended,
    TokensAppended,
)
from pyaici.tokens import Vocabulary
from tests.pyaici.engines.batching.scripted import (
    LATE,
    STOP,
    SUSPEND,
    Script,
    ScriptedRuntime,
    allow,
    anything,
    fork,
    splice,
)
from tests.pyaici.engines.batching.support import BOS, EOS, CountingPasses, count_slots, make_engine

Generate = Callable[..., list[int]]
PROMPT = [BOS, 72, 101, 108]
MATE = [BOS, 1, 2, 3, 4, 5, 6]


@pytest.fixture
def play(model: Any, vocabulary: Vocabulary, generate: Generate) -> Callable[..., Any]:
    """Runs a script next to a sequence without a controller, whose tokens must not change."""

    def run(
        make: Callable[[], Script],
        prompt: list[int] = PROMPT,
        events: list[Event] | None = None,
        post: bool = True,
        **request: Any,
    ) -> tuple[list[GenerationResult], ScriptedRuntime]:
        runtime = ScriptedRuntime(script=lambda arg, prompt: make())
        runtime.post = post
        engine = make_engine(model, runtime=runtime, vocabulary=vocabulary)
        mate = Request(MATE, max_tokens=20)
        *results, free = engine.run(
            [Request(prompt, controller="script", **({"max_tokens": 8} | request)), mate],
            None if events is None else events.append,
        )
        assert free.new_tokens == generate(MATE, 20)
        assert not runtime.live, "a controller was not freed"
        return results, runtime

    return run


def test_a_step_overlaps_mid_process_with_the_forward_pass(
    model: Any, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = ScriptedRuntime(script=lambda arg, prompt: Script(anything()))
    engine = make_engine(model, runtime=runtime, vocabulary=vocabulary)
    engine.add(Request(PROMPT, controller="script"))
    forward = engine._runner.run

    def note(feeds: Any) -> Any:
        runtime.order.append("forward")
        return forward(feeds)

    monkeypatch.setattr(engine._runner, "run", note)
    engine.step()
    assert runtime.order == ["begin_step", "wait_pre", "forward", "wait"]
    assert runtime.vocabulary.fingerprint == vocabulary.fingerprint


def test_the_controller_gets_argument_prompt_and_capabilities(model: Any, vocabulary: Vocabulary) -> None:
    seen: list[Any] = []

    def make(arg: str, prompt: list[int]) -> Script:
        seen.append((arg, prompt))
        return Script(STOP)

    runtime = ScriptedRuntime(script=make)
    engine = make_engine(model, runtime=runtime, vocabulary=vocabulary)
    engine.run([Request([], controller="script", arg="hello"), Request(PROMPT, controller="script", beams=2)])
    assert seen == [("hello", [BOS]), ("", PROMPT)]
    plain, beam = runtime.capabilities
    assert (
        plain.fork
        and plain.suspend
        and plain.backtrack
        and plain.ff_tokens
        and plain.logprobs
        and plain.top_logprobs
    )
    assert not beam.fork and not beam.suspend and beam.backtrack and beam.ff_tokens


def test_masks_decide_what_is_sampled(play: Any) -> None:
    for sampling in (
        Sampling(),
        Sampling(1.0, seed=1),
        Sampling(2.0, top_p=0.5, seed=1),
        Sampling(1, top_k=3),
    ):
        (result,), runtime = play(lambda: Script(allow(10, 20), allow(30), allow(40, EOS)), sampling=sampling)
        assert result.new_tokens[0] in (10, 20) and result.new_tokens[1] == 30
        assert set(result.new_tokens[2:]) <= {40, EOS}
        reports = runtime.ever[100].reports
        assert reports[0] == StepInput(100)
        assert [list(r.tokens) for r in reports[1:]] == [[t] for t in result.new_tokens]
        assert all(r.sampled and r.backtrack == 0 for r in reports[1:])


def test_a_row_that_allows_all_changes_nothing(play: Any, generate: Generate) -> None:
    (result,), _ = play(lambda: Script(anything()))
    assert result.new_tokens == generate(PROMPT, 8)


def test_logprobs_are_computed_only_where_they_are_used(play: Any) -> None:
    def known(**options: Any) -> list[bool]:
        (result,), runtime = play(
            lambda: Script(allow(5, 6), anything(top_logprobs=2), allow(7)), max_tokens=4, **options
        )
        reports = runtime.ever[100].reports[1:]
        for report, logprob in zip(reports, result.logprobs[len(PROMPT) :], strict=True):
            assert (report.logprob == report.logprob) == (report.allowed_mass == report.allowed_mass)
            assert report.logprob == pytest.approx(logprob, nan_ok=True)
        return [value == value for value in result.logprobs[len(PROMPT) :]]

    assert known() == [True] * 4
    assert known(post=False) == [False, True, False, False], "only the second result asks for top_logprobs"
    assert known(post=False, logprobs=True) == [True] * 4


def test_allowed_tokens_are_counted_on_request(play: Any) -> None:
    def counts(**options: Any) -> list[tuple[Origin, int | None]]:
        events: list[Event] = []
        script = [allow(1, 2, 3), anything(), splice(b"xy"), allow(7), STOP]
        play(lambda: Script(*script), events=events, **options)
        own = [event for event in events if isinstance(event, TokensAppended) and event.request == 0]
        return [(event.origin, event.allowed) for event in own]

    expected = [(Origin.SAMPLED, 3), (Origin.SAMPLED, 258), (Origin.FORCED, None), (Origin.SAMPLED, 1)]
    assert counts(count_allowed=True) == expected
    assert [allowed for _, allowed in counts()] == [None] * 4


def test_logprobs_without_control(model: Any, vocabulary: Vocabulary) -> None:
    engine = make_engine(model, vocabulary=vocabulary)
    known, unknown = engine.run([Request(PROMPT, max_tokens=3, logprobs=k) for k in (True, False)])
    assert known.new_tokens == unknown.new_tokens
    assert all(value <= 0 for value in known.logprobs[len(PROMPT) :])
    assert all(value != value for value in [*known.logprobs[: len(PROMPT)], *unknown.logprobs])


def test_log_probabilities_and_the_allowed_mass_are_right(play: Any, hf_model: Any) -> None:
    """Compares with the distribution computed from scratch, without padding ids."""
    for temperature, expected in ((0.0, 1.0), (0.7, 0.7)):
        (result,), runtime = play(
            lambda: Script(
                allow(*range(100)), MidResult(Verb.SAMPLE, allow(5).row), anything(top_logprobs=3)
            ),
            sampling=Sampling(temperature, seed=2),
            max_tokens=3,
        )
        reports = runtime.ever[100].reports[1:]
        for step, (report, allowed) in enumerate(zip(reports, (range(100), [5], range(258)), strict=True)):
            ids = torch.tensor([result.tokens[: len(PROMPT) + step]])
            logits = hf_model(input_ids=ids, use_cache=False).logits[0, -1, :258].double()
            logprobs = torch.log_softmax(logits / expected, 0)
            assert report.logprob == pytest.approx(logprobs[report.tokens[0]].item(), abs=1e-4)
            assert report.allowed_mass == pytest.approx(logprobs.exp()[list(allowed)].sum().item(), abs=1e-4)
            assert result.logprobs[len(PROMPT) + step] == report.logprob
        assert reports[0].top_logprobs is None and reports[1].top_logprobs is None
        best = logprobs.topk(3)
        assert reports[2].top_logprobs is not None
        assert [t for t, _ in reports[2].top_logprobs] == best.indices.tolist()
        assert [v for _, v in reports[2].top_logprobs] == pytest.approx(best.values.tolist(), abs=1e-4)


def test_a_row_may_set_the_temperature(play: Any, generate: Generate) -> None:
    (result,), _ = play(lambda: Script(anything(temperature=0.0)), sampling=Sampling(5.0, seed=1))
    assert result.new_tokens == generate(PROMPT, 8)
    (hot,), _ = play(lambda: Script(anything(temperature=5.0)), sampling=Sampling(0.0, seed=1))
    assert hot.new_tokens != result.new_tokens


@pytest.mark.parametrize(
    "filters", [{"top_k": 1}, {"top_p": 0.001}, {"min_p": 1.0}, {"top_n_sigma": 1e-6}], ids=str
)
def test_filters_of_the_request_apply_at_the_temperature_of_a_row(
    play: Any, generate: Generate, filters: dict[str, Any]
) -> None:
    (result,), _ = play(lambda: Script(anything(temperature=5.0)), sampling=Sampling(0.0, **filters))
    assert result.new_tokens == generate(PROMPT, 8)


@pytest.mark.parametrize(
    ("own", "requests"),
    [
        (Truncation(top_k=1), {"top_k": 5}),
        (Truncation(top_p=0.001), {"top_p": 0.9}),
        (Truncation(min_p=1.0), {"min_p": 0.1}),
        (Truncation(top_n_sigma=1e-6), {}),
        (Truncation(typical_p=0.9, min_p=1.0), {}),
    ],
    ids=str,
)
def test_options_of_a_row_replace_those_of_the_request(
    play: Any, generate: Generate, own: Truncation, requests: dict[str, Any]
) -> None:
    row = anything(temperature=5.0, truncation=own)
    (result,), _ = play(lambda: Script(row), sampling=Sampling(0.0, seed=1, **requests))
    assert result.new_tokens == generate(PROMPT, 8)


def test_options_of_a_row_may_keep_all_tokens(play: Any, generate: Generate) -> None:
    everything = Truncation(top_p=1.0, top_k=0xFFFFFFFF, min_p=1e-30, typical_p=1.0, top_n_sigma=1e30)
    strict = Sampling(5.0, top_p=0.001, top_k=1, min_p=1.0, seed=1)
    (cut,), _ = play(lambda: Script(anything()), sampling=strict)
    assert cut.new_tokens == generate(PROMPT, 8)
    (free,), _ = play(lambda: Script(anything(truncation=everything)), sampling=strict)
    assert free.new_tokens != cut.new_tokens


@pytest.mark.parametrize(("backtrack", "text", "fed"), [(1, b"x", 1), (2, b"xyz", 3), (2, b"", 1)])
def test_a_splice_feeds_no_token_that_the_cache_has(
    model: Any, vocabulary: Vocabulary, generate: Generate, backtrack: int, text: bytes, fed: int
) -> None:
    """Without new tokens, the last one is fed again for its logits."""
    script = [anything(), anything(), anything(), splice(text, backtrack), anything()]
    runtime = ScriptedRuntime(script=lambda arg, prompt: Script(*script))
    engine = make_engine(model, runtime=runtime, vocabulary=vocabulary)
    number = engine.add(Request(PROMPT, controller="script", max_tokens=8))
    for _ in range(4):
        engine.step()
    with CountingPasses(engine) as counted:
        engine.step()
    assert counted.passes == [[fed]]
    engine.run()
    start = [*generate(PROMPT, 3)[: 3 - backtrack], *text]
    assert engine.results(number)[0].new_tokens == [*start, *generate([*PROMPT, *start], 8 - len(start))]


def test_a_splice_takes_one_pass_and_acts_like_a_longer_prompt(
    model: Any, vocabulary: Vocabulary, generate: Generate
) -> None:
    runtime = ScriptedRuntime(script=lambda arg, prompt: Script(anything(), splice(b"hello"), anything()))
    engine = make_engine(model, runtime=runtime, vocabulary=vocabulary)
    number = engine.add(Request(PROMPT, controller="script", max_tokens=12))
    mate = engine.add(Request(MATE, max_tokens=20))
    engine.step()
    engine.step()
    with CountingPasses(engine) as fed:
        engine.step()
    assert fed.passes == [[5, 1]], "one pass must have the tokens of both sequences"
    engine.run()
    (result,) = engine.results(number)
    first = result.new_tokens[0]
    assert result.new_tokens[1:6] == list(b"hello")
    assert result.new_tokens[6:] == generate([*PROMPT, first, *b"hello"], 6)
    assert result.origins[-12:-5] == [Origin.SAMPLED, *[Origin.FORCED] * 5, Origin.SAMPLED]
    assert (result.sampled, result.forced) == (7, 5)
    assert runtime.ever[100].reports[2] == StepInput(100, list(b"hello"))
    assert engine.results(mate)[0].new_tokens == generate(MATE, 20)


def test_backtrack_shortens_only_its_own_sequence_and_is_reported(play: Any, generate: Generate) -> None:
    events: list[Event] = []
    script = [allow(ord("a")), allow(ord("b")), allow(ord("c")), splice(b"X", backtrack=2), anything()]
    (result,), runtime = play(lambda: Script(*script), events=events)
    assert result.new_tokens[:2] == list(b"aX")
    assert result.new_tokens[2:] == generate([*PROMPT, *b"aX"], 6)
    assert result.backtracked == 2 and result.text.startswith("aX")
    assert runtime.ever[100].reports[4] == StepInput(100, [ord("X")], backtrack=2)
    (event,) = [e for e in events if isinstance(e, Backtracked)]
    assert (event.count, event.text) == (2, "bc")


def test_backtrack_without_new_tokens_samples_again(play: Any) -> None:
    """The logits after the previous token are computed again and are equal."""
    script = [anything(), anything(), splice([], backtrack=1), anything()]
    (again,), _ = play(lambda: Script(*script))
    (never,), _ = play(lambda: Script(anything()))
    assert again.new_tokens == never.new_tokens
    assert again.logprobs[len(PROMPT) :] == pytest.approx(never.logprobs[len(PROMPT) :], abs=1e-5)


def test_backtrack_into_the_prompt(play: Any, generate: Generate) -> None:
    script = [allow(5), splice(b"ab", backtrack=3), anything()]
    (result,), _ = play(lambda: Script(*script))
    assert result.prompt_tokens == 2
    assert result.tokens[:4] == [*PROMPT[:2], *b"ab"]
    assert result.tokens[4:] == generate([*PROMPT[:2], *b"ab"], 6)
    assert result.text.startswith("ab") and result.origins[:4] == [Origin.PROMPT] * 2 + [Origin.FORCED] * 2


def test_a_sequence_without_any_token_gets_the_begin_token(play: Any, generate: Generate) -> None:
    (result,), runtime = play(lambda: Script(splice([], backtrack=len(PROMPT)), anything()))
    assert result.tokens == [BOS, *generate([BOS], 7)]
    assert result.prompt_tokens == 0
    assert runtime.ever[100].reports[1] == StepInput(100, [BOS], backtrack=len(PROMPT))
    (result,), runtime = play(lambda: Script(splice(b"Q", backtrack=len(PROMPT)), anything()))
    assert result.tokens == [*b"Q", *generate([*b"Q"], 7)]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (splice(b"", backtrack=5), "removes 5 tokens, but the sequence has only 4"),
        (splice([288]), "token 288"),
        (splice([1, -1]), "token -1"),
    ],
)
def test_an_invalid_splice_ends_the_sequence(play: Any, bad: MidResult, words: str) -> None:
    (result,), _ = play(lambda: Script(bad))
    assert result.finish_reason is FinishReason.ERROR and isinstance(result.error, ResultError)
    assert words in str(result.error)


def test_forced_tokens_are_cut_at_the_token_limit(play: Any) -> None:
    (result,), runtime = play(lambda: Script(splice(b"0123456789")), max_tokens=4)
    assert result.new_tokens == list(b"0123") and result.finish_reason is FinishReason.LENGTH
    assert runtime.ever[100].reports[-1] == StepInput(100, list(b"0123"), final=True)


def test_a_splice_that_ends_with_the_end_token_ends_the_sequence(play: Any) -> None:
    (result,), _ = play(lambda: Script(splice([*b"ok", EOS])))
    assert result.finish_reason is FinishReason.EOS and result.text == "ok"
    (result,), _ = play(lambda: Script(splice([*b"a", EOS, *b"b"]), STOP))
    assert result.finish_reason is FinishReason.STOP and result.text == "ab"


@pytest.mark.parametrize("endless", [splice([]), splice(b"x", backtrack=1), splice([], backtrack=0)])
def test_endless_work_without_progress_ends_the_sequence(play: Any, endless: MidResult) -> None:
    (result,), _ = play(lambda: Script(splice(b"x"), endless), max_tokens=2)
    assert result.finish_reason is FinishReason.WORK


def test_a_fork_copies_the_cache_and_shares_the_pass(
    model: Any, vocabulary: Vocabulary, generate: Generate
) -> None:
    class Forker(Script):
        def pre(self, report: StepInput) -> PreResult:
            return fork(3) if len(self.reports) == 3 else PreResult(Verb.CONTINUE)

        def mid(self, report: StepInput) -> MidResult:
            return allow(100 + self.number) if len(self.reports) == 3 else anything()

    runtime = ScriptedRuntime(script=lambda arg, prompt: Forker())
    engine = make_engine(model, runtime=runtime, vocabulary=vocabulary)
    number = engine.add(Request(PROMPT, controller="script", max_tokens=8))
    engine.step()
    engine.step()
    with CountingPasses(engine) as fed:
        events = engine.step()
        assert fed.passes == [[1]], "the three sequences must share one row"
        engine.step()
        assert fed.passes[1:] == [[1, 1, 1]]
    (forked,) = [e for e in events if isinstance(e, Forked)]
    assert forked.children == [1, 2] and not forked.by_engine
    engine.run()
    results = engine.results(number)
    assert [r.parent for r in results] == [None, 0, 0]
    start = generate(PROMPT, 2)
    for i, result in enumerate(results):
        assert result.new_tokens[:3] == [*start, 100 + i]
        assert result.new_tokens[3:] == generate([*PROMPT, *start, 100 + i], 5)


def test_sampled_forks_differ_and_repeat_with_the_same_seed(play: Any) -> None:
    def make() -> Script:
        return Script(anything(), pres=[fork(4)])

    first, _ = play(make, sampling=Sampling(3.0, seed=1))
    again, _ = play(make, sampling=Sampling(3.0, seed=1))
    assert len({tuple(r.tokens) for r in first}) == 4
    assert [r.tokens for r in first] == [r.tokens for r in again]


def test_forks_of_copies_in_the_first_step_share_one_prefill(
    model: Any, vocabulary: Vocabulary, generate: Generate
) -> None:
    """The engine makes n copies, the controller forks each of them, and some are suspended."""

    class Tree(Script):
        def pre(self, report: StepInput) -> PreResult:
            if len(self.reports) == 1:
                return fork(2)
            return SUSPEND if len(self.reports) == 2 and self.number else PreResult(Verb.CONTINUE)

    runtime = ScriptedRuntime(script=lambda arg, prompt: Tree(anything()))
    engine = make_engine(model, runtime=runtime, vocabulary=vocabulary)
    with CountingPasses(engine) as fed:
        results = engine.run([Request(PROMPT, controller="script", n=3, max_tokens=6)])
    assert fed.passes[0] == [len(PROMPT)]
    assert len(results) == 6
    assert all(r.new_tokens == generate(PROMPT, 6) for r in results)


def test_suspended_sequences_skip_steps_and_go_on_unchanged(play: Any, generate: Generate) -> None:
    events: list[Event] = []
    pres = [SUSPEND, SUSPEND, PreResult(Verb.CONTINUE), SUSPEND, PreResult(Verb.CONTINUE)]
    (result,), runtime = play(lambda: Script(anything(), pres=pres), events=events)
    assert result.new_tokens == generate(PROMPT, 8)
    assert len([e for e in events if isinstance(e, Suspended)]) == 2, "one event for each suspension"
    reports = runtime.ever[100].reports
    assert reports[1] == StepInput(100) and reports[2] == StepInput(100)
    assert reports[3].sampled and reports[4] == StepInput(100), "a token must be reported only once"


def test_late_sequences_keep_their_logits(model: Any, vocabulary: Vocabulary, generate: Generate) -> None:
    runtime = ScriptedRuntime(script=lambda arg, prompt: Script(anything(), LATE, LATE, anything()))
    engine = make_engine(model, runtime=runtime, vocabulary=vocabulary)
    engine.add(Request(PROMPT, controller="script", max_tokens=5))
    with CountingPasses(engine) as fed:
        engine.run()
    (result,) = engine.results(0)
    assert result.new_tokens == generate(PROMPT, 5)
    assert len(fed.passes) == 5, "a pass was repeated"
    assert runtime.steps == 5 + 2 + 1


def test_a_fork_of_a_late_sequence_has_its_logits(play: Any, generate: Generate) -> None:
    (a, b), _ = play(lambda: Script(LATE, anything(), pres=[PreResult(Verb.CONTINUE), fork(2)]))
    assert a.new_tokens == b.new_tokens == generate(PROMPT, 8)


def test_a_stop_in_pre_or_mid_process_ends_the_sequence(play: Any) -> None:
    (result,), _ = play(lambda: Script(allow(65), STOP))
    assert (result.finish_reason, result.text) == (FinishReason.STOP, "A")
    pres = [PreResult(Verb.CONTINUE), PreResult(Verb.STOP)]
    (result,), _ = play(lambda: Script(allow(65), pres=pres))
    assert (result.finish_reason, result.text) == (FinishReason.STOP, "A")


def test_an_error_ends_only_its_own_sequence(play: Any) -> None:
    error = TimeLimitError("mid_process used 21 ms")
    events: list[Event] = []
    (result,), _ = play(lambda: Script(allow(65), MidResult(Verb.ERROR, error=error)), events=events)
    assert (result.finish_reason, result.error, result.text) == (FinishReason.ERROR, error, "A")
    assert Finished(0, 0, FinishReason.ERROR, error) in events
    pres = [PreResult(Verb.CONTINUE), PreResult(Verb.ERROR, error=error)]
    (result,), _ = play(lambda: Script(allow(65), pres=pres))
    assert (result.finish_reason, result.error, result.text) == (FinishReason.ERROR, error, "A")


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(1.0, seed=1)])
@pytest.mark.parametrize("row", [allow(), allow(258, 287)], ids=["nothing", "ids that are no tokens"])
def test_an_empty_mask_ends_only_its_own_sequence(play: Any, row: MidResult, sampling: Sampling) -> None:
    (result,), _ = play(lambda: Script(allow(65), row), sampling=sampling)
    assert result.finish_reason is FinishReason.ERROR and isinstance(result.error, EmptyMaskError)
    assert result.text == "A"


def test_output_of_a_controller_is_an_event_and_stays_in_the_result(play: Any) -> None:
    class Talker(Script):
        def mid(self, report: StepInput) -> MidResult:
            self.output = f"{list(report.tokens)}\n"
            return allow(65)

        def post(self, report: StepInput) -> None:
            self.output = f"{list(report.tokens)} and the end\n"

    events: list[Event] = []
    (result,), _ = play(Talker, max_tokens=2, events=events)
    assert result.log == "[]\n[65]\n[65] and the end\n", "the last token must be reported too"
    assert [e.text for e in events if isinstance(e, Log)] == ["[]\n", "[65]\n", "[65] and the end\n"]
    own = [e for e in events if e.seq == 0]
    assert isinstance(own[-1], Finished) and isinstance(own[-2], Log), "the end must be the last event"


@pytest.mark.parametrize("verb", [Verb.STOP, Verb.ERROR])
def test_output_of_pre_process_comes_before_the_end_event(play: Any, verb: Verb) -> None:
    class Talker(Script):
        def pre(self, report: StepInput) -> PreResult:
            self.output = "bye"
            return PreResult(verb, error=AiciError("why") if verb == Verb.ERROR else None)

    events: list[Event] = []
    (result,), _ = play(Talker, events=events)
    assert result.log == "bye" and result.new_tokens == []
    own = [event for event in events if event.seq == 0]
    assert isinstance(own[-1], Finished) and isinstance(own[-2], Log)


def test_after_the_end_token_only_post_process_is_called(play: Any) -> None:
    """post_process receives the last token, and its output is kept."""

    class EndChecker(Script):
        def pre(self, report: StepInput) -> PreResult:
            assert EOS not in report.tokens
            return PreResult(Verb.CONTINUE)

        def mid(self, report: StepInput) -> MidResult:
            assert EOS not in report.tokens
            return allow(EOS)

        def post(self, report: StepInput) -> None:
            self.output = "bye" if report.tokens == [EOS] else ""

    results, _ = play(EndChecker)
    assert [r.new_tokens for r in results] == [[EOS]] and results[0].finish_reason is FinishReason.EOS
    assert results[0].log == "bye"


@pytest.mark.parametrize("where", ["begin_step", "wait_pre", "wait"])
def test_a_runtime_failure_ends_only_sequences_with_controllers(
    model: Any, vocabulary: Vocabulary, generate: Generate, where: str
) -> None:
    runtime = ScriptedRuntime(script=lambda arg, prompt: Script(anything()))
    engine = make_engine(model, runtime=runtime, vocabulary=vocabulary)
    lost = [engine.add(Request(PROMPT, controller="script")) for _ in range(2)]
    free = engine.add(Request(MATE, max_tokens=12))
    engine.step()
    error = WorkerDiedError("gone")
    runtime.failure = (where, error)
    engine.run()
    for number in lost:
        (result,) = engine.results(number)
        assert (result.finish_reason, result.error) == (FinishReason.ERROR, error)
    assert engine.results(free)[0].new_tokens == generate(MATE, 12)


@pytest.mark.parametrize("failure", [MemoryError("no room"), KeyboardInterrupt("no room")])
def test_a_model_failure_ends_all_sequences_and_the_engine_can_go_on(
    model: Any,
    vocabulary: Vocabulary,
    generate: Generate,
    failure: BaseException,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runtime = ScriptedRuntime(script=lambda arg, prompt: Script(anything()))
    engine = make_engine(model, runtime=runtime, vocabulary=vocabulary)
    numbers = [engine.add(Request(PROMPT, controller="script", n=2)), engine.add(Request(MATE))]
    engine.step()

    def fail(*args: Any, **options: Any) -> None:
        raise failure

    with monkeypatch.context() as patch:
        if isinstance(model, LlamaModel):
            patch.setattr(model.library, "decode", fail)
        else:  # in the middle of the pass
            patch.setattr(model.model.layers[1], "forward", fail)
        with pytest.raises(type(failure)):
            engine.step()
    assert not engine.busy and not runtime.live and not count_slots(engine)
    assert runtime.order[-1] == "abandon", "the engine must not wait for results that it cannot use"
    ended = [result for number in numbers for result in engine.results(number)]
    reason = FinishReason.ERROR if isinstance(failure, MemoryError) else FinishReason.CANCELLED
    assert [result.finish_reason for result in ended] == [reason] * 3
    assert all(("no room" in str(result.error)) == (reason is FinishReason.ERROR) for result in ended)
    assert engine.run([Request(PROMPT, controller="script", max_tokens=5)])[0].new_tokens == generate(
        PROMPT, 5
    )


def test_a_refused_clone_ends_only_that_copy(model: Any, vocabulary: Vocabulary) -> None:
    runtime = ScriptedRuntime(script=lambda arg, prompt: Script(anything()))
    runtime.refuse_clone = ForkLimitError("16 sequences")
    engine = make_engine(model, runtime=runtime, vocabulary=vocabulary)
    results = engine.run([Request(PROMPT, controller="script", n=3, max_tokens=2)])
    assert [r.finish_reason for r in results] == [FinishReason.LENGTH, FinishReason.ERROR, FinishReason.ERROR]
    assert all(isinstance(r.error, ForkLimitError) for r in results[1:])


def test_a_controller_that_refuses_its_argument_adds_nothing(model: Any, vocabulary: Vocabulary) -> None:
    def refuse(arg: str, prompt: list[int]) -> Script:
        raise AiciError("no")

    engine = make_engine(model, runtime=ScriptedRuntime(script=refuse), vocabulary=vocabulary)
    with pytest.raises(AiciError, match="no"):
        engine.add(Request(PROMPT, controller="script"))
    assert not engine.busy and not count_slots(engine)


def test_cancelling_frees_controllers_and_slots(model: Any, vocabulary: Vocabulary) -> None:
    runtime = ScriptedRuntime(script=lambda arg, prompt: Script(anything(), pres=[fork(3)]))
    engine = make_engine(model, runtime=runtime, vocabulary=vocabulary)
    number = engine.add(Request(PROMPT, controller="script"))
    engine.step()
    assert len(runtime.live) == 3
    engine.cancel(number)
    assert not runtime.live and not count_slots(engine) and not engine.busy
    assert [r.finish_reason for r in engine.results(number)] == [FinishReason.CANCELLED] * 3


@pytest.mark.parametrize("owner", [None, "mallory"])
def test_ended_forks_take_bounded_memory(
    play: Any, monkeypatch: pytest.MonkeyPatch, owner: str | None
) -> None:
    """A controller forks in each step and ends the forks. The other request is not disturbed."""

    class Forker(Script):
        def pre(self, report: StepInput) -> PreResult:
            return fork(4) if self.number == 0 else PreResult(Verb.STOP)

    monkeypatch.setattr(record, "MAX_OWNER_RESULT_BYTES" if owner else "MAX_RESULT_BYTES", 100_000)
    results, _ = play(lambda: Forker(anything()), max_tokens=100, prompt=[BOS] * 100, owner=owner)
    assert sum(result.nbytes for result in results) < 120_000
    first, *others = results
    assert isinstance(first.error, SpaceError) and "fork less often" in first.error.message
    assert {result.finish_reason for result in others} <= {FinishReason.STOP, FinishReason.ERROR}
    assert all(result.tokens[:100] == [BOS] * 100 for result in results)


def test_stats_count_steps_and_tokens(play: Any, model: Any, vocabulary: Vocabulary) -> None:
    script = [allow(65), splice(b"abc"), splice(b"", backtrack=2), allow(66), STOP]
    runtime = ScriptedRuntime(script=lambda arg, prompt: Script(*script))
    engine = make_engine(model, runtime=runtime, vocabulary=vocabulary)
    engine.run([Request(PROMPT, controller="script")])
    stats = engine.stats
    assert (stats.steps, stats.sampled, stats.forced, stats.backtracked) == (5, 2, 3, 2)
    assert all(seconds > 0 for seconds in stats.seconds.values()) and len(stats.recent) == 5
    assert 0 < stats.median_ms(ADDED) < 1000 * sum(stats.seconds.values())
    assert stats.mean_ms(Phase) == pytest.approx(1000 * sum(stats.seconds.values()) / 5)


def test_texts_of_events_add_up_to_the_result(play: Any) -> None:
    """This also holds when a character is split between tokens, or when half of it is removed."""
    euro = list("\u20ac".encode())
    script = [
        splice(b"x"),
        splice(euro[:2]),
        splice([euro[2]]),
        splice(euro[:1]),
        splice([], backtrack=2),
        STOP,
    ]
    events: list[Event] = []
    (result,), _ = play(lambda: Script(*script), events=events)
    shown = ""
    for event in (e for e in events if e.seq == 0):
        if isinstance(event, TokensAppended):
            shown += event.text
        elif isinstance(event, Backtracked):
            assert shown.endswith(event.text)
            shown = shown.removesuffix(event.text)
    assert shown == "x" and result.text == "x\ufffd"
