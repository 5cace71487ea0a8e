"""The V2 model runner without controllers writes the same tokens as Transformers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.pyaici.engines.vllm.remote import RemoteFailure
from tests.pyaici.engines.vllm.test_free import PROMPTS, greedy
from tests.thorough import also

pytestmark = [pytest.mark.slow, pytest.mark.real_worker]


def runner(llm: Any) -> tuple[str, bool]:
    worker = llm.llm_engine.model_executor.driver_worker
    scheduler = llm.llm_engine.vllm_config.scheduler_config
    return type(worker.model_runner).__module__, scheduler.async_scheduling


@pytest.mark.parametrize("configuration", ["v2-async", *also("v2-sync")])
def test_tokens_equal_those_of_transformers(
    on_v2: Callable[..., Any], reference: Callable[..., list[list[int]]], configuration: str
) -> None:
    assert on_v2(runner) == ("vllm.v1.worker.cpu.model_runner", configuration == "v2-async")
    assert on_v2(greedy, PROMPTS, 12) == reference(PROMPTS, 12)


@pytest.mark.configuration("v2-async")
def test_an_exception_in_the_other_process_is_raised_here(on_v2: Callable[..., Any]) -> None:
    with pytest.raises(RemoteFailure, match="IndexError: "):
        on_v2(fail)


def fail(llm: Any) -> None:
    raise IndexError(llm)
