"""Time that a controller adds to each generated token of a real model, on Transformers and llama.cpp."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from lab import ROOT
from lab.measurement.engine_pairs import EnginePairs
from lab.measurement.timing import paired_interval, summarise
from lab.report import Report
from pyaici import HfEngine, LlamaEngine, LlamaModel, Request, load_library
from pyaici.client.runtime import Runtime
from pyaici.models import default_gguf_path, default_model_path
from pyaici.toolchain import build_controller

if TYPE_CHECKING:
    from pyaici.engines.batching.engine import BatchingEngine

#: sequences in the batch -> runs, and upper limit of what control adds to a generated token, ms
BATCHES = {1: (24, 0.3), 8: (8, 0.3)}
#: allows any text, so that tokens and forward passes are the same as without control
_PATTERN = "(?s).*"
_TOKENS, _QUICK_TOKENS, _WARM_UP_TOKENS, _QUICK_WARM_UP_TOKENS = 49, 9, 17, 2
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
                    requests = [Request(prompt, module, _PATTERN) for prompt in _PROMPTS[:batch]]
                    pairs = EnginePairs(controlled, free, requests)
                    # warms up and builds the template
                    _run(
                        pairs, _QUICK_WARM_UP_TOKENS if report.quick else _WARM_UP_TOKENS, equal=name == "hf"
                    )
                    pairs.clear()
                    for _ in range(1 if report.quick else runs):
                        _run(pairs, _QUICK_TOKENS if report.quick else _TOKENS, equal=name == "hf")
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


def _run(pairs: EnginePairs, max_tokens: int, *, equal: bool) -> None:
    """Generates once with each engine. `equal`: both must produce the same tokens."""
    controlled, free = ([result.tokens for result in results] for results in pairs.run(max_tokens))
    if equal and controlled != free:
        raise TokensDifferError(f"with control: {controlled}; without: {free}")


def _report(report: Report, engine: str, batch: int, pairs: EnginePairs, target: float) -> float:
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
