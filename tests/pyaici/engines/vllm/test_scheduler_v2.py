"""Controllers in the scheduler with vLLM's model runner V2, the default on GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pyaici.client.daemon import Daemon
from pyaici.client.runtime import Runtime
from tests.pyaici.engines.vllm.engines import Engines
from tests.pyaici.engines.vllm.guests import flags, second_thoughts
from tests.pyaici.engines.vllm.remote import V2Engines
from tests.pyaici.engines.vllm.requests import FRANCE, YEAR, generate, parameters

pytestmark = pytest.mark.slow

#: prompt, controller, argument, held back. The controllers mask, force text, stop, backtrack, and hold end
#: tokens; the last call has no controller
CALLS = [
    (FRANCE, "regex", YEAR, False),
    ("Describe Ada in JSON:", "json_schema", '{"const": {"name": "Ada", "age": 36}}', False),
    ("Is the sky blue?", "yesno", "", False),
    ("Pick a fruit:", "choice", '["red apples", "green pears"]', False),
    (FRANCE, "thoughts", "6 3  Rome, of all places", True),
    ("One two three four", "thoughts", "12 8 ", True),
    (FRANCE, "flags", "e1b0s0e1a0e0", True),
    (FRANCE, "", "", False),
]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("thoughts")
    with Daemon(workers=1, store=folder / "store") as daemon, Runtime(daemon.socket_path) as runtime:
        runtime.tag(runtime.upload(second_thoughts(folder)).id, "thoughts")
        runtime.tag(runtime.upload(flags(folder)).id, "flags")
        yield {"AICI_SOCKET": str(daemon.socket_path)}


def write(llm: Any) -> list[tuple[list[int], str | None]]:
    """Returns the tokens and the finish reason of each call."""
    requests = []
    for prompt, controller, arg, *held in CALLS:
        request = parameters(controller, arg, max_tokens=18)
        if held == [True]:
            request.extra_args["aici_hold"] = True
        requests.append((prompt, request))
    return [(list(choice.token_ids), choice.finish_reason) for choice in generate(llm, requests)]


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_results_equal_those_of_runner_v1(
    engines: Engines, v2_engines: V2Engines, environment: dict[str, str], asynchronous: bool
) -> None:
    expected = write(engines(env=environment))
    assert all(reason in ("stop", "length") for _, reason in expected)
    assert v2_engines.run(write, env=environment, async_scheduling=asynchronous) == expected
