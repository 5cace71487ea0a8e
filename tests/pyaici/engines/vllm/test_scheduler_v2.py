"""Controllers in the scheduler with vLLM's model runner V2, the default on GPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.pyaici.engines.vllm.configurations import ConfiguredEngines
from tests.pyaici.engines.vllm.requests import FRANCE, YEAR, generate, parameters
from tests.thorough import also

pytestmark = [pytest.mark.slow, pytest.mark.real_worker]

#: prompt, controller, argument, held back. The controllers mask, force text, stop, backtrack, and hold end
#: tokens; the last call has no controller
CALLS = [
    (FRANCE, "regex", YEAR, False),
    ("Describe Ada in JSON:", "json_schema", '{"const": {"name": "Ada", "age": 36}}', False),
    ("Is the sky blue?", "yesno", "", False),
    ("Pick a fruit:", "choice", '["red apples", "green pears"]', False),
    (FRANCE, "thoughts", "6 3  Rome, of all places", True),
    ("One two three four", "thoughts", "12 8 ", True),
    (FRANCE, "flags_mid", "e1b0s0e1a0e0", True),
    (FRANCE, "", "", False),
]


def write(llm: Any) -> list[tuple[list[int], str | None]]:
    """Returns the tokens and the finish reason of each call."""
    requests = []
    for prompt, controller, arg, *held in CALLS:
        request = parameters(controller, arg, max_tokens=18)
        if held == [True]:
            request.extra_args["aici_hold"] = True
        requests.append((prompt, request))
    return [(list(choice.token_ids), choice.finish_reason) for choice in generate(llm, requests)]


@pytest.fixture(scope="session")
def expected(engines: ConfiguredEngines, guests: Callable[..., None]) -> list[tuple[list[int], str | None]]:
    """The results with the V1 model runner."""
    guests("thoughts", "flags_mid")
    return write(engines("async"))


@pytest.mark.configuration("async")
def test_results_of_runner_v1_have_no_errors(expected: list[tuple[list[int], str | None]]) -> None:
    assert all(reason in ("stop", "length") for _, reason in expected)


@pytest.mark.parametrize("configuration", ["v2-async", *also("v2-sync")])
def test_results_equal_those_of_runner_v1(
    expected: list[tuple[list[int], str | None]], on_v2: Callable[..., Any]
) -> None:
    assert on_v2(write) == expected
