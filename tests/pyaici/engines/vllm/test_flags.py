"""Held end tokens and skipped callbacks have the same effect as on Transformers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pyaici.build import build_controller
from pyaici.client.daemon import Daemon
from pyaici.client.runtime import Runtime
from pyaici.engines.engine import FinishReason, Request
from pyaici.engines.vllm import VllmEngine
from tests.pyaici.engines.vllm.engines import Engines
from tests.pyaici.engines.vllm.guests import flags
from tests.pyaici.engines.vllm.requests import FRANCE, generate, parameters

pytestmark = pytest.mark.slow

SOURCE = Path(__file__).resolve().parents[3] / "guests" / "flags.c"
#: arguments of the guest. Held end tokens: removed, kept, or part of a splice. End tokens that are not held.
#: A stop after an end token. Results that depend on all reports, with and without flags that skip callbacks
ARGUMENTS = [
    *("e1b0a0", "e1s0a0", "d1b0a0", "e0", "d0", "e1e1s0e0", "a0a0e1x0", "e6s6b6a6", "s1e1m1m0"),
    *("#3", "+3", "#8", "+8", "#11", "+11"),
]
REQUESTS = [Request(FRANCE, module="flags", arg=arg, max_tokens=16) for arg in ARGUMENTS]


@dataclass
class Expected:
    """The results of the engine on Transformers, and the end token."""

    results: list[Any]
    end: int


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("guests")
    guests = {"flags": build_controller(SOURCE, folder / "flags.wasm").path, "mid": flags(folder)}
    with (
        # a virtual machine charges a guest for time that its host takes away
        Daemon(workers=1, limits={"pre_ms": 50, "post_ms": 50}, store=folder / "store") as daemon,
        Runtime(daemon.socket_path) as runtime,
    ):
        for name, wasm in guests.items():
            runtime.tag(runtime.upload(wasm).id, name)
        yield daemon


def summary(results: list[Any]) -> list[Any]:
    return sorted(
        (r.request, r.tokens, [o.value for o in r.origins], r.reason.value, str(r.error)) for r in results
    )


@pytest.fixture(scope="module")
def expected(daemon: Daemon, model_path: Path) -> Expected:
    from pyaici.engines.hf import HfEngine
    from pyaici.engines.hf.program import load_model

    with Runtime(daemon.socket_path) as runtime:
        engine = HfEngine(*load_model(model_path, "cpu"), runtime)
        results = engine.run(REQUESTS)
    reasons = {result.reason for result in results}
    assert reasons >= {FinishReason.EOS, FinishReason.STOP, FinishReason.LENGTH}
    assert all(result.error is None for result in results)
    ends = set(engine.vocabulary.eos)
    assert sum(any(token in ends for token in result.new_tokens[:-1]) for result in results) >= 3
    return Expected(summary(results), engine.vocabulary.eos[0])


def options(daemon: Daemon, **more: Any) -> dict[str, Any]:
    return {"env": {"AICI_SOCKET": str(daemon.socket_path)}, **more}


@pytest.mark.parametrize("asynchronous", [True, False], ids=["async", "sync"])
def test_results_equal_those_on_transformers(
    engines: Engines, daemon: Daemon, expected: Expected, asynchronous: bool
) -> None:
    """CALLS of test_drafts.py covers this with drafts, and CALLS of test_scheduler_v2.py with runner V2."""
    engine = VllmEngine(engines(**options(daemon, async_scheduling=asynchronous)), max_sequences=4)
    assert summary(engine.run(REQUESTS)) == expected.results


def test_other_stop_tokens_are_not_held(engines: Engines, daemon: Daemon, expected: Expected) -> None:
    """Covers the user's own stop tokens, an answer that is held back, and a controller without flags."""
    llm = engines(**options(daemon, async_scheduling=False))
    letter = llm.get_tokenizer().encode("x")[-1]
    stopped = parameters("mid", "s1a1", stop_token_ids=[letter])
    back = parameters("mid", "e1b0x0")
    back.extra_args["aici_hold"] = True
    plain = parameters("mid", "e0")
    choices = generate(llm, [(FRANCE, stopped), (FRANCE, back), (FRANCE, plain)])
    assert (list(choices[0].token_ids), choices[0].stop_reason) == ([letter], letter)
    assert (list(choices[1].token_ids), choices[1].stop_reason) == ([letter], "controller")
    assert (list(choices[2].token_ids), choices[2].finish_reason) == ([expected.end], "stop")
    assert choices[1].text == "x"
