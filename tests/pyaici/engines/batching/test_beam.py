"""Beam search compared with the library's, and beam search with controllers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers

from aicirt.contract.errors import EmptyMaskError, ForkLimitError
from aicirt.contract.messages import StepInput
from pyaici.client.results import MidResult
from pyaici.engines.engine import FinishReason, Request
from pyaici.tokens import Vocabulary
from tests.pyaici.engines.batching.scripted import LATE, Script, ScriptedRuntime, allow, anything, splice
from tests.pyaici.engines.batching.support import BOS, EOS, count_slots, make_engine, make_model

PROMPTS = [[BOS, 72, 101, 108], [65] * 12]


def search(
    model: Any,
    prompt: list[int],
    beams: int,
    max_tokens: int,
    allowed: list[int] | None = None,
    **options: Any,
) -> Any:
    """Runs the library's beam search over all real tokens, or over the `allowed` ones."""

    def real_tokens(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        logprobs = torch.full_like(scores, float("-inf"))
        logprobs[:, :258] = torch.log_softmax(scores[:, :258], dim=1)
        if allowed is not None:
            forbidden = [token for token in range(258) if token not in allowed]
            logprobs[:, forbidden] = float("-inf")
        return logprobs

    return model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        num_beams=beams,
        num_return_sequences=beams,
        do_sample=False,
        max_new_tokens=max_tokens,
        eos_token_id=EOS,
        pad_token_id=0,
        logits_processor=transformers.LogitsProcessorList([real_tokens]),
        return_dict_in_generate=True,
        output_scores=True,
        **options,
    )


@pytest.fixture(scope="module")
def eager_to_end(convert: Callable[[Any], Any]) -> tuple[Any, Any]:
    """A model that often samples the end token, so that results of many lengths compete.

    Returns the library's model, and the same for `make_engine`.
    """
    ends = make_model()
    with torch.no_grad():
        ends.lm_head.weight[EOS] *= 2.5
    return ends, convert(ends)


@pytest.mark.parametrize("prompt", PROMPTS, ids=len)
@pytest.mark.parametrize(("beams", "max_tokens"), [(2, 1), (3, 12), (5, 25)])
@pytest.mark.parametrize("length_penalty", [0.0, 1.0, 2.0])
def test_results_and_scores_equal_those_of_the_library(
    eager_to_end: tuple[Any, Any],
    vocabulary: Vocabulary,
    prompt: list[int],
    beams: int,
    max_tokens: int,
    length_penalty: float,
) -> None:
    reference, model = eager_to_end
    want = search(reference, prompt, beams, max_tokens, length_penalty=length_penalty)
    engine = make_engine(model, vocabulary=vocabulary)
    request = Request(prompt, beams=beams, n=beams, max_tokens=max_tokens, length_penalty=length_penalty)
    results = engine.run([request])
    assert len(results) == beams
    for row, score, result in zip(want.sequences, want.sequences_scores, results, strict=True):
        tokens = row[len(prompt) :].tolist()
        if EOS in tokens:
            tokens = tokens[: tokens.index(EOS) + 1]
        assert result.new_tokens == tokens
        assert result.score == pytest.approx(score.item(), abs=1e-4)
        assert result.finish_reason is (FinishReason.EOS if tokens[-1] == EOS else FinishReason.LENGTH)


def test_a_search_has_the_same_result_alone_and_in_a_batch(model: Any, vocabulary: Vocabulary) -> None:
    engine = make_engine(model, vocabulary=vocabulary)
    request = Request(PROMPTS[0], beams=3, max_tokens=10)
    (alone,) = engine.run([request])
    a, free, b = engine.run([request, Request(PROMPTS[1], max_tokens=6), request])
    assert a.tokens == b.tokens == alone.tokens
    assert len(free.new_tokens) == 6
    assert not count_slots(engine)


class Odd(Script):
    """Allows odd tokens only, and remembers how its sequence grew."""

    def __init__(self) -> None:
        super().__init__()
        self.path: list[int] = []

    def mid(self, report: StepInput) -> MidResult:
        del self.path[len(self.path) - report.backtrack :]
        self.path += report.tokens
        return allow(*range(1, 256, 2))


def test_each_beam_has_a_controller_that_knows_its_path(
    model: Any, hf_model: Any, vocabulary: Vocabulary
) -> None:
    runtime = ScriptedRuntime(odd=lambda arg, prompt: Odd())
    engine = make_engine(model, runtime=runtime, vocabulary=vocabulary)
    results = engine.run([Request(PROMPTS[0], controller="odd", beams=4, n=4, max_tokens=7)])
    assert len(results) == 4 and not runtime.live
    assert all(token % 2 for result in results for token in result.new_tokens)
    paths = [script.path for script in runtime.ever.values() if isinstance(script, Odd)]
    for result in results:
        assert result.new_tokens in paths, "no controller received exactly the tokens of this result"
    want = search(hf_model, PROMPTS[0], 4, 7, allowed=list(range(1, 256, 2)))
    assert [r.new_tokens for r in results] == want.sequences[:, len(PROMPTS[0]) :].tolist()
    assert [r.score for r in results] == pytest.approx(want.sequences_scores.tolist(), abs=1e-4)
    reports = [r for script in runtime.ever.values() for r in script.reports if r.sampled]
    assert all(r.logprob <= 0 and 0 < r.allowed_mass < 1 for r in reports)


def test_beams_that_splice_or_are_late_keep_their_score(model: Any, vocabulary: Vocabulary) -> None:
    script = [anything(), splice(b"abc"), LATE, splice(b"X", backtrack=2), anything()]
    runtime = ScriptedRuntime(script=lambda arg, prompt: Script(*script))
    engine = make_engine(model, runtime=runtime, vocabulary=vocabulary)
    results = engine.run([Request(PROMPTS[0], controller="script", beams=3, n=3, max_tokens=6)])
    assert len(results) == 3
    for result in results:
        assert result.new_tokens[1:3] == list(b"aX")
        known = [value for value in result.logprobs if value == value]
        assert len(known) == len(result.new_tokens) - 2
        assert result.score == pytest.approx(sum(known) / len(result.new_tokens), abs=1e-5)
    assert results[0].score >= results[1].score >= results[2].score


def test_beams_that_end_by_a_splice_are_results(model: Any, vocabulary: Vocabulary) -> None:
    runtime = ScriptedRuntime(script=lambda arg, prompt: Script(anything(), splice([1, EOS])))
    engine = make_engine(model, runtime=runtime, vocabulary=vocabulary)
    results = engine.run([Request(PROMPTS[0], controller="script", beams=3, n=2, max_tokens=6)])
    assert [r.finish_reason for r in results] == [FinishReason.EOS] * 2
    assert all(r.new_tokens[1:] == [1, EOS] for r in results)


def test_a_beam_whose_mask_is_empty_drops_out(model: Any, vocabulary: Vocabulary) -> None:
    class Picky(Script):
        def mid(self, report: StepInput) -> MidResult:
            if not report.tokens:
                return allow(10, 20, 30)
            return allow() if report.tokens == [10] else anything()

    runtime = ScriptedRuntime(picky=lambda arg, prompt: Picky(), never=lambda arg, prompt: Script(allow()))
    engine = make_engine(model, runtime=runtime, vocabulary=vocabulary)
    results = engine.run([Request(PROMPTS[0], controller="picky", beams=3, n=3, max_tokens=4)])
    assert len(results) == 3
    assert all(r.new_tokens[0] in (20, 30) and r.error is None for r in results)
    (nothing,) = engine.run([Request(PROMPTS[0], controller="never", beams=3)])
    assert isinstance(nothing.error, EmptyMaskError) and not runtime.live


def test_refused_clones_narrow_the_search(model: Any, vocabulary: Vocabulary) -> None:
    runtime = ScriptedRuntime(script=lambda arg, prompt: Script(anything()))
    runtime.refuse_clone = ForkLimitError("one sequence")
    engine = make_engine(model, runtime=runtime, vocabulary=vocabulary)
    results = engine.run([Request(PROMPTS[0], controller="script", beams=3, n=1, max_tokens=4)])
    assert results[0].error is None and len(results[0].new_tokens) == 4
