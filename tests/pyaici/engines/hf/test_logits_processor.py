"""`AiciLogitsProcessor`: controllers in the generation loop of Transformers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers

from aicirt.contract.abi import Verb
from aicirt.contract.errors import AiciError, LivelockError, ResultError, TrapError
from aicirt.contract.messages import StepInput
from pyaici.client.results import MidResult
from pyaici.engines.hf.logits_processor import AiciLogitsProcessor
from tests.pyaici.engines.batching.scripted import (
    LATE,
    STOP,
    Script,
    ScriptedRuntime,
    allow,
    anything,
    splice,
)
from tests.pyaici.engines.batching.support import BOS, EOS, WIDTH

PROMPT = [BOS, 72, 101, 108]


def run(
    model: Any, scripts: list[Script], max_tokens: int = 8, **options: Any
) -> tuple[list[list[int]], AiciLogitsProcessor, ScriptedRuntime]:
    left = iter(scripts)
    runtime = ScriptedRuntime(script=lambda arg, prompt: next(left))
    prompts = [PROMPT[i % 2 :] for i in range(len(scripts))]
    pad = [[0] * (len(PROMPT) - len(p)) for p in prompts]
    ids = torch.tensor([a + p for a, p in zip(pad, prompts, strict=True)])
    attention = torch.tensor([[0] * len(a) + [1] * len(p) for a, p in zip(pad, prompts, strict=True)])
    with AiciLogitsProcessor(runtime, "script", "x", prompts, eos=EOS) as control:
        out = model.generate(
            ids,
            attention_mask=attention,
            logits_processor=transformers.LogitsProcessorList([control]),
            max_new_tokens=max_tokens,
            eos_token_id=EOS,
            pad_token_id=0,
            suppress_tokens=list(range(258, WIDTH)),
            **({"do_sample": False} | options),
        )
    assert not runtime.live
    rows = [row[len(PROMPT) :].tolist() for row in out]
    return [row[: row.index(EOS) + 1] if EOS in row else row for row in rows], control, runtime


def test_masks_row_by_row_greedy_and_sampled(model: Any, generate: Callable[..., list[int]]) -> None:
    for options in ({}, {"do_sample": True, "temperature": 2.0}):
        scripts = [Script(allow(10), allow(20, 30), allow(EOS)), Script(allow(*range(65, 91)))]
        (a, b), _, runtime = run(model, scripts, **options)
        assert a[0] == 10 and a[1] in (20, 30) and a[2] == EOS
        assert len(b) == 8 and set(b) <= set(range(65, 91))
        reports = runtime.ever[101].reports
        assert [list(r.tokens) for r in reports] == [[], *([t] for t in b[:-1])]
        assert runtime.ever[100].reports[-1].tokens == [EOS], "the controller must receive the end token"
    (free,), _, _ = run(model, [Script(anything())])
    assert free == generate(PROMPT, 8)


def test_a_splice_is_forced_token_by_token_and_reported_whole(
    model: Any, generate: Callable[..., list[int]]
) -> None:
    scripts = [Script(anything(), splice(b"hello"), anything()), Script(anything())]
    (a, b), _, runtime = run(model, scripts, max_tokens=10)
    assert a[1:6] == list(b"hello")
    assert a[6:] == generate([*PROMPT, *a[:6]], 4)
    assert b == generate(PROMPT[1:], 10)
    reports = runtime.ever[100].reports
    assert reports[2] == StepInput(100, list(b"hello")) and reports[3].sampled
    assert len(runtime.ever[101].reports) == 10, "the other controller must run in every step"


def test_a_splice_with_the_end_token_ends_the_row(model: Any) -> None:
    (row,), _, runtime = run(model, [Script(splice([65, EOS, 66]))])
    assert row == [65, EOS]
    (row,), _, runtime = run(
        model,
        [
            Script(splice([65, 66, EOS])),
        ],
    )
    assert row == [65, 66, EOS] and runtime.freed == [100]


def test_the_loop_waits_for_late_controllers(model: Any, generate: Callable[..., list[int]]) -> None:
    scripts = [Script(LATE, LATE, anything(), splice([]), anything()), Script(anything())]
    (a, b), _, runtime = run(model, scripts, max_tokens=4)
    assert a == generate(PROMPT, 4) and b == generate(PROMPT[1:], 4)
    assert runtime.ever[100].reports[1] == StepInput(100)
    (row,), control, _ = run(model, [Script(splice([]))])
    assert row == [EOS] and isinstance(control.errors[0], LivelockError)


def test_a_controller_that_stops_or_fails_ends_only_its_own_row(
    model: Any, generate: Callable[..., list[int]]
) -> None:
    trap = TrapError("unreachable")
    scripts = [
        Script(anything(), STOP),
        Script(anything()),
        Script(MidResult(Verb.ERROR, error=trap)),
        Script(splice([], backtrack=1)),
    ]
    (a, b, c, d), control, _ = run(model, scripts)
    assert a == [*generate(PROMPT, 1), EOS] and b == generate(PROMPT[1:], 8)
    assert c == [EOS] and d == [EOS]
    assert control.errors[2] is trap and isinstance(control.errors[3], ResultError)
    assert set(control.errors) == {2, 3}


def test_logs_are_kept_by_row(model: Any) -> None:
    class Talker(Script):
        def mid(self, report: StepInput) -> MidResult:
            self.output = f"{list(report.tokens)}"
            return allow(65) if not report.tokens else allow(EOS)

    _, control, runtime = run(model, [Talker(), Script(anything())])
    assert control.logs == {0: "[][65][257]"}
    for c in runtime.capabilities:
        assert not (c.fork or c.backtrack or c.suspend or c.logprobs or c.top_logprobs)
        assert c.ff_tokens and c.dense


def test_beam_search_is_refused(model: Any) -> None:
    with pytest.raises(ValueError, match="2 rows for 1 prompt;"):
        run(model, [Script(anything())], num_beams=2)


def test_a_refused_argument_frees_the_controllers_started_before(model: Any) -> None:
    made: list[str] = []

    def make(arg: str, prompt: list[int]) -> Script:
        made.append(arg)
        if len(made) == 2:
            raise AiciError("no")
        return Script(anything())

    runtime = ScriptedRuntime(script=make)
    with pytest.raises(AiciError, match="no"):
        AiciLogitsProcessor(runtime, "script", "x", [PROMPT, PROMPT], eos=[EOS])
    assert runtime.freed == [100] and not runtime.live
    with pytest.raises(ValueError, match="end token"):
        AiciLogitsProcessor(runtime, "script", "x", [], eos=[])


def test_a_later_processor_that_overrides_a_forced_token_is_an_error(model: Any) -> None:
    runtime = ScriptedRuntime(script=lambda arg, prompt: Script(splice(b"hi")))
    with AiciLogitsProcessor(runtime, "script", "x", [PROMPT], eos=EOS) as control:
        other = transformers.LogitsProcessorList([control, lambda ids, scores: torch.zeros_like(scores)])
        with pytest.raises(RuntimeError, match="forced 104"):
            model.generate(
                torch.tensor([PROMPT]),
                logits_processor=other,
                max_new_tokens=4,
                do_sample=False,
                pad_token_id=0,
            )
