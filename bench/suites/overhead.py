"""Time that a controller adds to each generated token of a real model, on Transformers and llama.cpp."""

from __future__ import annotations

import contextlib
import gc
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from bench.measurement.timing import paired_interval, summarise
from bench.report import ROOT, Report
from pyaici.build import build_controller
from pyaici.client.runtime import Runtime
from pyaici.engines.hf import HfEngine, Phase, Request
from pyaici.engines.llama import LlamaEngine, LlamaModel, load_library
from pyaici.models import default_gguf_path, default_model_path

if TYPE_CHECKING:
    from pyaici.engines.batching.engine import BatchingEngine

#: sequences in the batch -> runs, and upper limit of what control adds to a generated token, ms
BATCHES = {1: (24, 0.3), 8: (8, 0.3)}
#: allows any text, so that tokens and forward passes are the same as without control
_PATTERN = "(?s).*"
_TOKENS, _QUICK_TOKENS, _WARM_UP_TOKENS = 49, 9, 17
#: steps of one engine in a row; the first one does not count, since the other engine has just run
_BLOCK = 8
_PROMPTS = (
    "Once upon a time there was a",
    "The history of the bicycle begins with",
    "To make a good soup you need",
    "The main difference between cats and dogs is",
    "In the north of the country the winters are",
    "A computer program consists of",
    "My grandmother always told me that",
    "The most important rule of the game is",
)


class TokensDifferError(AssertionError):
    """Generation with and without control produced different tokens."""


def run(report: Report) -> None:
    """Reports medians of the differences of pairs of steps. Engines with and without control take turns."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, Runtime() as runtime, contextlib.ExitStack() as stack:
        built = build_controller(ROOT / "controllers" / "regex", Path(folder) / "regex.wasm")
        module = runtime.upload(built.path).id
        free_steps: dict[str, dict[int, float]] = {}
        for name, make in (("hf", _transformers()), ("llama", _llama(stack))):
            with make(runtime) as controlled, make(None) as free:
                for batch, (runs, target) in BATCHES.items():
                    # the logits of llama.cpp are not the same in every run
                    pairs = _Pairs(controlled, free, module, batch, equal=name == "hf")
                    # warms up and builds the template
                    pairs.run(_QUICK_TOKENS if report.quick else _WARM_UP_TOKENS)
                    pairs.clear()
                    for _ in range(1 if report.quick else runs):
                        pairs.run(_QUICK_TOKENS if report.quick else _TOKENS)
                    free_steps.setdefault(name, {})[batch] = _report(report, name, batch, pairs, target)
    for batch in BATCHES:
        # float32 on Transformers, Q8_0 on llama.cpp
        ratio = free_steps["hf"][batch] / free_steps["llama"][batch]
        report.figure(f"llama.tokens_s_ratio_to_hf.b{batch}", ratio, "ratio")


def _transformers() -> Callable[[Runtime | None], BatchingEngine]:
    path = default_model_path()
    model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    tokenizer: Any = AutoTokenizer.from_pretrained(path)
    return lambda runtime: HfEngine(model, tokenizer, runtime)


def _llama(stack: contextlib.ExitStack) -> Callable[[Runtime | None], BatchingEngine]:
    model = stack.enter_context(LlamaModel(load_library(), default_gguf_path()))
    return lambda runtime: LlamaEngine(model, runtime)


class _Pairs:
    """Times of steps with and without control, ms. The n-th steps of both make a pair.

    `times` are those of whole steps. `beside` is the time outside the forward pass: it has less noise, but
    does not show how the worker's use of memory and caches slows the forward pass down.
    """

    def __init__(
        self, controlled: BatchingEngine, free: BatchingEngine, module: str, batch: int, *, equal: bool
    ) -> None:
        """`equal`: both engines must produce the same tokens."""
        self._equal = equal
        self._engines = controlled, free
        self._modules = module, None
        self._batch = batch
        self.times: tuple[list[float], list[float]] = ([], [])
        self.beside: tuple[list[float], list[float]] = ([], [])

    def clear(self) -> None:
        for times in (*self.times, *self.beside):
            times.clear()

    def run(self, max_tokens: int) -> None:
        """Generates once with each engine. Raises TokensDifferError if the tokens differ."""
        requests = [
            [
                engine.add(Request(prompt, module=module, arg=_PATTERN, max_tokens=max_tokens))
                for prompt in _PROMPTS[: self._batch]
            ]
            for engine, module in zip(self._engines, self._modules, strict=True)
        ]
        gc.collect()
        gc.disable()
        for engine in self._engines:
            engine.step()  # reads the prompts
        number = 0
        while all(engine.busy for engine in self._engines):
            for which in (0, 1) if number % 2 else (1, 0):
                self._block(self._engines[which], self.times[which], self.beside[which])
            number += 1
        gc.enable()
        tokens = []
        for engine, numbers in zip(self._engines, requests, strict=True):
            engine.run()  # tells controllers about the end
            tokens.append([result.tokens for request in numbers for result in engine.results(request)])
        if self._equal and tokens[0] != tokens[1]:
            raise TokensDifferError(f"with control: {tokens[0]}; without: {tokens[1]}")

    @staticmethod
    def _block(engine: BatchingEngine, times: list[float], beside: list[float]) -> None:
        for number in range(_BLOCK):
            start = time.perf_counter()
            engine.step()
            if number:
                taken = time.perf_counter() - start
                times.append(taken * 1e3)
                beside.append((taken - engine.stats.recent[-1][Phase.FORWARD]) * 1e3)


def _report(report: Report, engine: str, batch: int, pairs: _Pairs, target: float) -> float:
    """Reports the figures of an engine. Returns the median step without control, ms."""
    controlled, free = pairs.times
    name = f"overhead.{engine}.b{batch}"
    report.samples(f"{name}.controlled", controlled, "ms")
    report.samples(f"{name}.free", free, "ms")
    added, low, high = (value / batch for value in paired_interval(controlled, free))
    report.figure(f"{name}_ms", added, "ms", target=target)
    report.figure(f"{name}_low_ms", low, "ms")
    report.figure(f"{name}_high_ms", high, "ms")
    report.figure(f"{name}_beside_ms", paired_interval(*pairs.beside)[0] / batch, "ms")
    report.figure(f"{name}_free_step_ms", summarise(free).median, "ms")
    report.figure(f"{name}_added_pct", 100 * added * batch / summarise(free).median, "%")
    return summarise(free).median
