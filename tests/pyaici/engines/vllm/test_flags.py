"""Held end tokens and skipped callbacks have the same effect as on Transformers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from pyaici import VllmEngine
from pyaici.engines.engine import FinishReason, Request
from tests.pyaici.engines.vllm.requests import FRANCE, generate, parameters

pytestmark = [pytest.mark.slow, pytest.mark.any_worker]

#: arguments of the guest. Held end tokens: removed, kept, or part of a splice. End tokens that are not held.
#: A stop after an end token. Results that depend on all reports, with and without flags that skip callbacks
ARGUMENTS = [
    *("e1b0a0", "e1s0a0", "d1b0a0", "e0", "d0", "e1e1s0e0", "a0a0e1x0", "e6s6b6a6", "s1e1m1m0"),
    *("#3", "+3", "#8", "+8", "#11", "+11"),
]
REQUESTS = [Request(FRANCE, controller="flags", arg=arg, max_tokens=16) for arg in ARGUMENTS]


@dataclass
class Expected:
    """The results of the engine on Transformers, and the end token."""

    results: list[Any]
    end: int


def summary(results: list[Any]) -> list[Any]:
    first = min(r.request for r in results)
    return sorted(
        (r.request - first, r.tokens, [o.value for o in r.origins], r.finish_reason.value, str(r.error))
        for r in results
    )


@pytest.fixture(scope="session")
def expected(hf: Any, guests: Callable[..., None]) -> Expected:
    guests("flags", "flags_mid")
    results = hf.run(REQUESTS)
    reasons = {result.finish_reason for result in results}
    assert reasons >= {FinishReason.EOS, FinishReason.STOP, FinishReason.LENGTH}
    assert all(result.error is None for result in results)
    ends = set(hf.vocabulary.eos)
    assert sum(any(token in ends for token in result.new_tokens[:-1]) for result in results) >= 3
    return Expected(summary(results), hf.vocabulary.eos[0])


@pytest.mark.parametrize("configuration", ["async", "sync"])
def test_results_equal_those_on_transformers(llm: Any, expected: Expected) -> None:
    """CALLS of test_drafts.py covers this with drafts, and CALLS of test_scheduler_v2.py with runner V2."""
    engine = VllmEngine(llm, max_sequences=4)
    assert summary(engine.run(REQUESTS)) == expected.results


def test_other_stop_tokens_are_not_held(llm: Any, expected: Expected) -> None:
    """Covers the user's own stop tokens, an answer that is held back, and a controller without flags."""
    letter = llm.get_tokenizer().encode("x")[-1]
    stopped = parameters("flags_mid", "s1a1", stop_token_ids=[letter])
    back = parameters("flags_mid", "e1b0x0")
    back.extra_args["aici_hold"] = True
    plain = parameters("flags_mid", "e0")
    choices = generate(llm, [(FRANCE, stopped), (FRANCE, back), (FRANCE, plain)])
    assert (list(choices[0].token_ids), choices[0].stop_reason) == ([letter], letter)
    assert (list(choices[1].token_ids), choices[1].stop_reason) == ([letter], "controller")
    assert (list(choices[2].token_ids), choices[2].finish_reason) == ([expected.end], "stop")
    assert choices[1].text == "x"
