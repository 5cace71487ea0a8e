"""The engine in separate processes, which is vLLM's default."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.system.waiting import PATIENCE, Door, wait_until
from pyaici import VllmEngine
from pyaici.client.runtime import Runtime
from pyaici.engines.engine import Request
from pyaici.scripting.script import LANGUAGE_NAMES, interpreter_file, read_request
from tests.pyaici.engines.vllm.requests import FRANCE, YEAR, generate, parameters
from tests.pyaici.engines.vllm.test_free import PROMPTS, greedy

pytestmark = [pytest.mark.slow, pytest.mark.configuration("processes")]


def test_requests_without_controllers_equal_transformers(
    llm: Any, reference: Callable[..., list[list[int]]]
) -> None:
    assert not hasattr(llm.llm_engine.engine_core, "engine_core"), "the engine must be in another process"
    assert greedy(llm, PROMPTS, 40) == reference(PROMPTS, 40)


def switches(pid: int) -> int:
    """Returns how often the main thread of a process has slept."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def test_an_engine_process_sleeps_while_its_requests_wait(llm: Any, runtime: Runtime) -> None:
    """A message of its client wakes it up."""
    engine, door = VllmEngine(llm, runtime), Door()
    module = runtime.upload(interpreter_file(LANGUAGE_NAMES["python"])).id
    source = 'from aici import *\nasync def main():\n    await force(await call("door"))\n'
    arg = read_request({"language": "python", "source": source})[1]
    number = engine.add(Request(PROMPTS[0], controller=module, arg=arg, calls={"door": door}))
    assert door.reached.wait(PATIENCE)
    (pid,) = (process.pid for process in llm.llm_engine.engine_core.resources.engine_manager.processes)

    def sleeps() -> bool:
        before = switches(pid)
        time.sleep(0.5)  # an engine that looks every few milliseconds wakes up a hundred times
        return switches(pid) - before < 10

    wait_until(sleeps)
    mate = engine.add(Request(PROMPTS[0], max_tokens=3))
    while engine._families.names(mate):
        engine.step()
    wait_until(sleeps)
    door.open()
    while engine.busy:
        engine.step()
    assert (engine.results(number)[0].error, engine.results(mate)[0].error) == (None, None)


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
