"""The engine in separate processes, which is vLLM's default."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.pyaici.engines.vllm.requests import FRANCE, YEAR, generate, parameters
from tests.pyaici.engines.vllm.test_free import PROMPTS, greedy

pytestmark = [pytest.mark.slow, pytest.mark.configuration("processes")]


def test_requests_without_controllers_equal_transformers(
    llm: Any, reference: Callable[..., list[list[int]]]
) -> None:
    assert not hasattr(llm.llm_engine.engine_core, "engine_core"), "the engine must be in another process"
    assert greedy(llm, PROMPTS, 40) == reference(PROMPTS, 40)


def test_controllers_work_in_separate_processes(llm: Any) -> None:
    free, controlled, wrong = generate(
        llm,
        [
            (FRANCE, parameters(max_tokens=10)),
            (FRANCE, parameters("regex", YEAR)),
            (FRANCE, parameters("regex", "(")),
        ],
    )
    assert free.finish_reason == "length" and controlled.stop_reason == "controller"
    assert wrong.finish_reason == "error" and "column" in str(wrong.stop_reason)
