"""The plugin does nothing for requests without a controller: the same outputs, and few calls in a step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import pyaici
from lab.system.forked import VLLM, run_forked
from lab.vllm.engines import ENVIRONMENT, Engines
from tests.docs.blocks import ROOT
from tests.pyaici.engines.vllm.requests import FRANCE, parameters, scheduler_of

pytestmark = [pytest.mark.slow, pytest.mark.simulated_worker]
OURS = str(Path(pyaici.__file__).parent / "engines" / "vllm")
#: calls of our functions in a step: five, one for each token, and four for each request that ends
MAX_CALLS = 5 + 3 + 4
REQUESTS = [
    (FRANCE, {"max_tokens": 24}),
    ("one two three", {"max_tokens": 9, "logprobs": 3}),
    (FRANCE * 9, {"max_tokens": 30, "temperature": 1.0, "seed": 7}),
]


def report(model: str) -> None:
    """Runs requests. Prints the scheduler's class, the outputs of each step, and our calls in each step."""
    import msgspec

    engines = Engines(Path(model))
    llm = engines(async_scheduling=True)
    outputs: list[str] = []
    calls: list[int] = []
    scheduler = scheduler_of(llm)
    update = scheduler.update_from_output

    def update_and_keep(*args: Any) -> Any:
        result = update(*args)
        # numbers of requests are random
        each = [
            [output.new_token_ids, output.new_logprobs, output.finish_reason, output.stop_reason]
            for group in result.values()
            for output in group.outputs
        ]
        outputs.append(msgspec.json.encode(each, enc_hook=lambda array: array.tolist()).decode())
        return result

    scheduler.update_from_output = update_and_keep
    for number, (prompt, options) in enumerate(REQUESTS):
        llm.llm_engine.add_request(str(number), {"prompt": prompt}, parameters(**options))
    while llm.llm_engine.has_unfinished_requests():
        count = 0

        def count_calls(frame: FrameType, event: str, _: Any) -> None:
            nonlocal count
            count += event == "call" and frame.f_code.co_filename.startswith(OURS)

        sys.setprofile(count_calls)
        try:
            llm.llm_engine.step()
        finally:
            sys.setprofile(None)
        calls.append(count)
    print(json.dumps([type(scheduler).__name__, outputs, calls]))
    engines.close()


def last_line(ran: subprocess.CompletedProcess[str]) -> str:
    """Returns the last line that a program has printed."""
    assert ran.returncode == 0, ran.stderr[-5000:]
    return ran.stdout.splitlines()[-1]


def test_outputs_are_the_same(model_path: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"from {__name__} import report\nreport({str(model_path)!r})\n")
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))

    def run(plugins: str) -> Any:
        env = os.environ | {"PYTHONPATH": path, "VLLM_PLUGINS": plugins}
        return json.loads(last_line(run_forked(str(program), imports=VLLM, env=env)))

    name, expected, _ = run("simulated")
    assert name == "AsyncScheduler" and len(expected) > 20
    name, found, calls = run("simulated,aici")
    assert name == "AiciAsyncScheduler" and found == expected
    assert 0 < max(calls) <= MAX_CALLS, calls


# test_structure.py proves most of it: `FOREIGN` names who may import wasmtime and Transformers
@pytest.mark.thorough
def test_the_entry_point_imports_nothing_heavy() -> None:
    """An engine's process loads the scheduler's part when it makes its scheduler."""
    program = """
import multiprocessing, sys
import vllm.config, vllm.v1.worker.worker_base
multiprocessing.current_process().name = "EngineCore_DP0"
before = set(sys.modules)
from pyaici.engines.vllm.plugin import register
register()
print(*{name.split(".")[0] for name in set(sys.modules) - before})
"""
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, env=os.environ | ENVIRONMENT, capture_output=True, text=True, check=False)
    assert not set(last_line(ran).split()) & {"msgpack", "tokenizers", "transformers", "wasmtime"}
