"""Log-probabilities and most likely tokens for controllers are those of the engine on Transformers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pyaici.engines.engine import FinishReason, Request, Sampling
from pyaici.engines.vllm.frontend import events_of
from tests.pyaici.engines.vllm.requests import FRANCE, counter, generate, parameters
from tests.thorough import also

pytestmark = pytest.mark.slow

#: see `gauge` in guests.py
#: At a temperature, `top_k` makes the most likely token certain, and the log-probabilities stay comparable
WARM = Sampling(temperature=0.7, top_k=1)
CASES = [
    Request(FRANCE, "gauge", "0 1 0", max_tokens=8),
    Request("Once upon a time", "gauge", "5 1 1", max_tokens=8),
    Request("def f(x):", "gauge", "30 3 1", max_tokens=40),
    Request(FRANCE, "gauge_mid", "3 12 1", max_tokens=40),
    Request("One two three four", "gauge_mid", "0 1 0", max_tokens=20),
    Request("Dear Sir,", "gauge_mid", "64 1 1", WARM, max_tokens=8),
    Request("Dear Sir,", "gauge", "4 3 0", WARM, max_tokens=8),
]
#: number of cases without WARM. On a CPU, its `top_k` ends vLLM's engine in a pass without drafts if the
#: engine has drafts, and with the V2 runner, whose kernel for it Triton cannot interpret
COLD = 5


@pytest.fixture(autouse=True)
def uploaded(guests: Callable[..., None]) -> None:
    guests("gauge", "gauge_mid")


def run(llm: Any, most: int = len(CASES)) -> list[tuple[list[int], list[float]]]:
    """Runs all cases with vLLM, or the first `most`."""
    from vllm.sampling_params import RequestOutputKind

    engine = llm.llm_engine
    for number, case in enumerate(CASES[:most]):
        sampling = {"temperature": case.sampling.temperature, "top_k": case.sampling.top_k}
        request = parameters(case.controller, case.arg, max_tokens=case.max_tokens, **sampling)
        request.extra_args["aici_events"] = True
        request.output_kind = RequestOutputKind.DELTA
        engine.add_request(f"case-{number}", case.prompt, request)
    tokens: list[list[int]] = [[] for _ in CASES[:most]]
    logs = [""] * most
    while engine.has_unfinished_requests():
        for output in engine.step():
            number = int(output.request_id.removeprefix("case-"))
            assert output.outputs[0].finish_reason in (None, "length"), output
            assert output.outputs[0].logprobs is None
            for event in events_of(output):
                if event[0] == "sampled":
                    tokens[number] += event[1]
                if event[0] == "log":
                    logs[number] += event[1]
    return [(some, _numbers(log)) for some, log in zip(tokens, logs, strict=True)]


def _numbers(log: str) -> list[float]:
    """Returns the numbers in the log of a gauge, without tokens that are not among the two most likely.

    Engines may order tokens with nearly the same probability differently.
    """
    found: list[float] = []
    for line in log.splitlines():
        words = [float(word) for word in line.split()]
        first = len(words) % 2  # a line begins with the step's token, if there is one
        top = words[first + 4 :]
        found += [*words[: first + 4], *top[:4:2], *top[1::2]]
    return found


@pytest.fixture(scope="session")
def expected(hf: Any, guests: Callable[..., None]) -> Any:
    """The result of `run` on Transformers."""
    guests("gauge", "gauge_mid")
    results = hf.run(CASES)
    written = [(result.new_tokens, _numbers(result.log)) for result in results]
    assert all(result.finish_reason is FinishReason.LENGTH for result in results)
    measured = [any(-20 < number < 0 for number in numbers) for _, numbers in written]
    assert measured == [True] * 4 + [False] + [True] * 2
    return [(tokens, pytest.approx(numbers, abs=2e-3, nan_ok=True)) for tokens, numbers in written]


@pytest.mark.parametrize("configuration", ["async", "sync"])
def test_the_values_equal_those_on_transformers(llm: Any, expected: Any) -> None:
    assert run(llm) == expected


@pytest.mark.parametrize("configuration", ["draft-model", *also("sync-draft-model")])
def test_the_values_with_drafts(llm: Any, expected: Any) -> None:
    """The measured token comes after some accepted drafts. The draft model is the model itself."""
    before = counter(llm, "spec_decode_num_accepted_tokens")
    assert run(llm, COLD) == expected[:COLD]
    assert counter(llm, "spec_decode_num_accepted_tokens") > before


@pytest.mark.parametrize("configuration", ["v2-async", *also("v2-sync")])
def test_the_values_with_the_v2_runner(on_v2: Callable[..., Any], expected: Any) -> None:
    assert on_v2(run, COLD) == expected[:COLD]


def test_log_probabilities_of_clients_stay_the_same(llm: Any) -> None:
    """Clients ask for none, for the sampled token alone, and for several; controllers for 5."""
    counts = (None, 0, 2, 12)
    alone = generate(llm, [(FRANCE, parameters(max_tokens=6, logprobs=count)) for count in counts])
    asked = [(FRANCE, parameters("gauge", "5 1 0", max_tokens=6, logprobs=count)) for count in counts]
    free = [(FRANCE, parameters(max_tokens=6, logprobs=count)) for count in counts]
    choices = generate(llm, [*asked, *free])
    for choice, expected in zip(choices, alone * 2, strict=True):
        assert choice.token_ids == expected.token_ids
        assert (choice.logprobs is None) == (expected.logprobs is None)
        for listed, same in zip(choice.logprobs or [], expected.logprobs or [], strict=True):
            assert {token: one.logprob for token, one in listed.items()} == pytest.approx(
                {token: one.logprob for token, one in same.items()}, abs=1e-3
            )
