"""The V2 model runner without controllers writes the same tokens as Transformers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.pyaici.engines.vllm.remote import RemoteFailure, V2Engines
from tests.pyaici.engines.vllm.test_free import PROMPTS, greedy

pytestmark = pytest.mark.slow


def runner(llm: Any) -> tuple[str, bool]:
    worker = llm.llm_engine.model_executor.driver_worker
    scheduler = llm.llm_engine.vllm_config.scheduler_config
    return type(worker.model_runner).__module__, scheduler.async_scheduling


@pytest.mark.parametrize("asynchronous", [False, True])
def test_tokens_equal_those_of_transformers(
    v2_engines: V2Engines, reference: Callable[..., list[list[int]]], asynchronous: bool
) -> None:
    module, found = v2_engines.run(runner, async_scheduling=asynchronous)
    assert (module, found) == ("vllm.v1.worker.cpu.model_runner", asynchronous)
    assert v2_engines.run(greedy, PROMPTS, 12, async_scheduling=asynchronous) == reference(PROMPTS, 12)


def test_an_exception_in_the_other_process_is_raised_here(v2_engines: V2Engines) -> None:
    with pytest.raises(RemoteFailure, match="IndexError: "):
        v2_engines.run(fail)


def fail(llm: Any) -> None:
    raise IndexError(llm)
