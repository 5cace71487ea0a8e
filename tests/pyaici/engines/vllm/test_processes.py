"""The engine in separate processes, which is vLLM's default: all paths, in one engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyaici.bundled import find_controller
from pyaici.client.runtime import Runtime
from pyaici.engines.hf import HfEngine, Request
from pyaici.engines.hf.program import load_model
from tests.pyaici.engines.vllm.engines import Engines
from tests.pyaici.engines.vllm.requests import FRANCE, YEAR, generate, parameters
from tests.pyaici.engines.vllm.test_free import PROMPTS, greedy
from tests.pyaici.engines.vllm.test_logits_processor import MIXED, Call, without_end, write

pytestmark = pytest.mark.slow

#: calls with bundled controllers; there is no daemon with others
CALLS: list[Call] = [call for call in MIXED if call[1] != "nudge"]


@pytest.fixture
def llm(engines: Engines) -> Any:
    return engines(multiprocess=True)


@pytest.fixture(scope="module")
def expected(model_path: Path) -> list[list[int]]:
    """The tokens of our engine on Transformers under the same controllers."""
    with Runtime() as runtime:
        engine = HfEngine(*load_model(model_path, "cpu"), runtime)
        modules = {name: runtime.upload(find_controller(name)).id for _, name, _ in CALLS if name}
        requests = [
            Request(prompt, module=modules.get(name or ""), arg=arg, max_tokens=24)
            for prompt, name, arg in CALLS
        ]
        return [result.new_tokens for result in engine.run(requests)]


def test_requests_without_controllers_equal_transformers(
    llm: Any, reference: Callable[..., list[list[int]]]
) -> None:
    assert not hasattr(llm.llm_engine.engine_core, "engine_core"), "the engine must be in another process"
    assert greedy(llm, PROMPTS, 40) == reference(PROMPTS, 40)


def test_the_logits_processor_path_equals_transformers(llm: Any, expected: list[list[int]]) -> None:
    assert without_end(write(llm, CALLS, 24)) == without_end(expected)


def test_the_overlapped_path_works_in_separate_processes(llm: Any, engines: Engines) -> None:
    """Closing the engine ends the processes that it started."""
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
    engines.close()
