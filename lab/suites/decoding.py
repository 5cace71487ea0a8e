"""The costs of decoding methods: looks at a distribution, mixed logits, and expected text."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray

from aicirt.contract.abi import Verb
from aicirt.contract.messages import StepInput
from lab import ROOT
from lab.inputs.vocabularies import synthetic
from lab.measurement.timing import alternate, summarise
from lab.report import Report
from pyaici import LlamaEngine, LlamaModel, load_library
from pyaici.client.arguments import ALL, Capabilities
from pyaici.client.results import Look, MidResult
from pyaici.client.runtime import Runtime
from pyaici.engines.batching.sampler import describe_next
from pyaici.engines.engine import Request
from pyaici.models import default_gguf_path
from pyaici.toolchain import build_controller

TOKENS, QUICK_TOKENS = 131_072, 4096
#: most likely tokens that a controller asks for
TOP = 64
#: steps of each kind in a round, and rounds
_STEPS, _ROUNDS, _QUICK_ROUNDS = 20, 20, 2
#: CFG by mixed logits may take so much more time than two free sequences
MIX_TARGET = 1.05
#: tokens of a text, and rounds of texts
_LENGTH, _QUICK_LENGTH, _TEXTS, _QUICK_TEXTS = 100, 8, 3, 1
_SENTENCE = "The committee met on Tuesday and agreed to publish the annual report before the end of June. "
_COPIED = "Repeat this text.\n" + 6 * _SENTENCE
_MIXED = """
from aici import *
async def without():
    await force(" Yes:")
async def main():
    await force(" No:")
    await mix(without, weight=-0.5)
    await gen(max_tokens=arg)
"""
_PREDICTED = """
from aici import *
async def main():
    await gen(max_tokens=arg, prediction=prompt())
"""


def run(report: Report) -> None:
    """Measures the client and a worker with a synthetic vocabulary, and llama.cpp with the default model."""
    with tempfile.TemporaryDirectory() as folder:
        built = build_controller(ROOT / "lab" / "guests" / "looking.c", Path(folder) / "looking.wasm")
        with Runtime() as runtime:
            _looks(report, runtime, runtime.upload(built.path).id)
    with (
        LlamaModel(load_library(), default_gguf_path()) as model,
        Runtime() as runtime,
        LlamaEngine(model, runtime) as engine,
    ):
        _mix(report, engine)
        _lookup(report, engine)


# -- looks ---------------------------------------------------------------------------------------------------


def _looks(report: Report, runtime: Runtime, module: str) -> None:
    """Reports what a look adds to a step, and what the possibility of looks adds to steps without any."""
    size = QUICK_TOKENS if report.quick else TOKENS
    rounds = _QUICK_ROUNDS if report.quick else _ROUNDS
    runtime.register(synthetic(size))
    logits = np.random.default_rng(1).normal(0, 3, size).astype(np.float32)
    contestants = {
        "float32": Looking(runtime, module, "", logits),
        f"top{TOP}": Looking(runtime, module, "x" * TOP, logits),
        "free": Looking(runtime, module, "x", logits),
        "free_without": Looking(runtime, module, "x", logits, capabilities=Capabilities(look=0)),
    }
    times = alternate({name: one.steps for name, one in contestants.items()}, rounds)
    for name in ("float32", f"top{TOP}"):
        report.samples(f"decoding.logits_us.{name}", times[name], "us")
        report.figure(f"decoding.logits_us.{name}", summarise(times[name]).median, "us")
    free = summarise(times["free"]).median - summarise(times["free_without"]).median
    report.figure("decoding.free_requests_us", free, "us")
    report.figure("decoding.free_step_us", summarise(times["free"]).median, "us")


class Looking:
    """A sequence whose controller looks at the distribution of each token, or never."""

    def __init__(
        self,
        runtime: Runtime,
        module: str,
        argument: str,
        logits: NDArray[np.float32],
        capabilities: Capabilities = ALL,
    ) -> None:
        self._runtime, self._logits = runtime, logits
        self._seq = runtime.instantiate(module, argument, (1, 2, 3), capabilities=capabilities)
        self._present = StepInput(self._seq)

    def steps(self) -> float:
        """Runs some steps. Returns the least time, us: of a look with its answer, else of a step."""
        return min(self._step() for _ in range(_STEPS)) * 1e6

    def _step(self) -> float:
        taken, answer = self._send(lambda: self._present)
        if isinstance(answer, Look):
            taken, answer = self._send(partial(self._answer, answer))
        assert answer.verb == Verb.SAMPLE, answer
        self._present = StepInput(self._seq, [5], sampled=True)
        return taken

    def _answer(self, look: Look) -> StepInput:
        return StepInput(self._seq, top_logprobs=describe_next(look, self._logits, len(self._logits)))

    def _send(self, make: Callable[[], StepInput]) -> tuple[float, MidResult]:
        start = time.perf_counter()
        step = self._runtime.begin_step([make()])
        step.wait_pre()
        answer = step.wait().mid[self._seq]
        return time.perf_counter() - start, answer


# -- llama.cpp -----------------------------------------------------------------------------------------------


def _mix(report: Report, engine: LlamaEngine) -> None:
    """Reports the time of a step of two mixed sequences, to that of two free ones."""
    length = _QUICK_LENGTH if report.quick else _LENGTH
    mixed = _scripted(_MIXED, "Is the sky blue?", length)
    free = Request("Is the sky blue?", n=2, max_tokens=length)
    rounds = _QUICK_TEXTS if report.quick else _TEXTS
    times = alternate(
        {"mixed": partial(_step_seconds, engine, mixed), "free": partial(_step_seconds, engine, free)}, rounds
    )
    ratio = summarise(times["mixed"]).median / summarise(times["free"]).median
    report.figure("decoding.mix_ratio", ratio, "ratio", target=MIX_TARGET)
    report.figure("decoding.mixed_step_ms", summarise(times["mixed"]).median * 1e3, "ms")


def _step_seconds(engine: LlamaEngine, request: Request) -> float:
    """Returns the median time of a step of a request, the first ones of a text left out."""
    number = engine.add(request)
    taken: list[float] = []
    while engine.busy:
        start = time.perf_counter()
        engine.step()
        taken.append(time.perf_counter() - start)
    for result in engine.results(number):
        assert result.error is None, result.error
    return median(taken[len(taken) // 4 :])


def _lookup(report: Report, engine: LlamaEngine) -> None:
    """Reports the time of a text that repeats its prompt, to that of the same text with a prediction."""
    length = _QUICK_LENGTH if report.quick else _LENGTH
    plain = _scripted(_PREDICTED.replace(", prediction=prompt()", ""), _COPIED, length)
    predicted = _scripted(_PREDICTED, _COPIED, length)
    texts: dict[str, list[int]] = {}
    passes: dict[str, int] = {}

    def write(name: str, request: Request) -> float:
        before, number = engine.stats.steps, engine.add(request)
        engine.run()
        (result,) = engine.results(number)
        assert result.error is None, result.error
        texts[name], passes[name] = result.new_tokens, engine.stats.steps - before
        return result.seconds - result.first_token_seconds

    contestants = {
        name: partial(write, name, request) for name, request in (("plain", plain), ("lookup", predicted))
    }
    times = alternate(contestants, _QUICK_TEXTS if report.quick else _TEXTS)
    assert texts["plain"] == texts["lookup"], "the text with a prediction differs"
    report.figure("decoding.lookup_ratio", median(times["plain"]) / median(times["lookup"]), "ratio")
    for name, count in passes.items():
        report.figure(f"decoding.{name}_passes", count, "passes")


def _scripted(script: str, prompt: str, length: int) -> Request:
    return Request(prompt, "pyctrl", json.dumps({"script": script, "arg": length}), max_tokens=2 * length)
