"""The engine in processes of its own, as vLLM has it unless told otherwise: all paths, in one engine."""

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

#: of these the controllers are bundled; there is no daemon that has others
CALLS: list[Call] = [call for call in MIXED if call[1] != "nudge"]


@pytest.fixture
def llm(engines: Engines) -> Any:
    return engines(multiprocess=True)


@pytest.fixture(scope="module")
def expected(model_path: Path) -> list[list[int]]:
    """What our engine on Transformers writes under the same controllers."""
    with Runtime() as runtime:
        engine = HfEngine(*load_model(model_path, "cpu"), runtime)
        modules = {name: runtime.upload(find_controller(name)).id for _, name, _ in CALLS if name}
        requests = [
            Request(prompt, module=modules.get(name or ""), arg=arg, max_tokens=24)
            for prompt, name, arg in CALLS
        ]
        return [result.new_tokens for result in engine.run(requests)]


def test_without_controllers(llm: Any, reference: Callable[..., list[list[int]]]) -> None:
    assert not hasattr(llm.llm_engine.engine_core, "engine_core"), "it is in another process"
    assert greedy(llm, PROMPTS, 40) == reference(PROMPTS, 40)


def test_in_a_logits_processor(llm: Any, expected: list[list[int]]) -> None:
    assert without_end(write(llm, CALLS, 24)) == without_end(expected)


def test_beside_the_pass(llm: Any, engines: Engines) -> None:
    """What the engine has started ends with it."""
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
