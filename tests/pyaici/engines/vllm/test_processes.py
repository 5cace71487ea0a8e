"""The engine in a process of its own, which is vLLM's default.

It runs in a program that is forked from a process with vLLM, as those of servers are.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.system.forked import VLLM, run_forked
from lab.system.waiting import PATIENCE, Door, wait_until
from lab.vllm.engines import OPTIONS
from lab.vllm.shims.async_scheduling import async_scheduling_on_cpu
from pyaici import VllmEngine
from pyaici.client.control import Daemon
from pyaici.client.runtime import Runtime
from pyaici.engines.engine import Request
from pyaici.scripting.script import LANGUAGE_NAMES, interpreter_file, read_request
from tests.docs.blocks import ROOT
from tests.pyaici.engines.vllm.requests import FRANCE, YEAR, generate, parameters
from tests.pyaici.engines.vllm.test_free import PROMPTS, greedy

pytestmark = pytest.mark.slow


def play(model: str, socket: str, expected: str) -> None:
    """Runs the steps of the test. `expected`: tokens of free requests, as JSON."""
    from vllm import LLM

    with async_scheduling_on_cpu():
        llm = LLM(model, **OPTIONS | {"async_scheduling": True, "max_num_seqs": 2})
    assert not hasattr(llm.llm_engine.engine_core, "engine_core"), "the engine must be in another process"
    assert greedy(llm, PROMPTS, 40) == json.loads(expected)
    controllers_work(llm)
    with Runtime(socket) as runtime:
        the_process_sleeps_while_its_requests_wait(llm, runtime)


def controllers_work(llm: Any) -> None:
    free, controlled, wrong = generate(
        llm,
        [
            (FRANCE, parameters(max_tokens=10)),
            (FRANCE, parameters("regex", YEAR)),
            (FRANCE, parameters("regex", "(")),
        ],
    )
    assert free.finish_reason == "length" and controlled.stop_reason == "controller"
    assert wrong.finish_reason == "error" and "column" in str(wrong.stop_reason), wrong


def switches(pid: int) -> int:
    """Returns how often the main thread of a process has slept."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def the_process_sleeps_while_its_requests_wait(llm: Any, runtime: Runtime) -> None:
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


def test_controllers_work_and_the_process_sleeps_while_they_wait(
    model_path: Path, daemon: Daemon, reference: Callable[..., list[list[int]]], tmp_path: Path
) -> None:
    program, socket = tmp_path / "program.py", str(daemon.socket_path)
    program.write_text(f"import sys\nfrom {__name__} import play\nplay(*sys.argv[1:])\n")
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    env = {"PYTHONPATH": path, "AICI_SOCKET": socket, "VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
    arguments = str(program), str(model_path), socket, json.dumps(reference(PROMPTS, 40))
    done = run_forked("lab.vllm.shims.forked", *arguments, imports=VLLM, env=os.environ | env)
    assert done.returncode == 0, done.stderr[-3000:]
