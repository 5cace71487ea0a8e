"""Controllers beside an NVIDIA GPU: masks by CUDA, and the time that they add to a step of a large model."""

from __future__ import annotations

import gc
import importlib.util
import mmap
import random
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from aicirt.contract.abi import RowKind
from lab.inputs.constraints import ENDLESS_WORDS
from lab.inputs.vocabularies import synthetic
from lab.measurement.timing import paired_interval, percentile, summarise
from lab.report import CannotRunError, Report
from pyaici.bundled import build_cure, bundled_controllers
from pyaici.client.masks import apply_masks
from pyaici.client.results import Row

BATCH, TOKENS = 64, 131_072
_MASKS, _QUICK_MASKS, _WARM_UP_MASKS = 400, 10, 5
#: upper limit of what control adds to a step, relative to a free step
_MAX_ADDED = 0.01
#: shapes of models of a real size, in the parameters of Llama's configuration
MODELS: dict[str, dict[str, int]] = {
    "1b": {
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    },
    "8b": {
        "hidden_size": 4096,
        "intermediate_size": 14_336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    },
}
BATCHES = (1, 8, BATCH)
_RUNS, _STEPS, _QUICK_STEPS, _PROMPT_TOKENS = 4, 65, 9, 8
#: bytes on the GPU besides the weights: the cache, the logits, CUDA's own
_SPARE = 4 << 30


def run(report: Report) -> None:
    """Measures everything that this machine allows, and reports what it does not and why.

    Builds nothing, and needs no network. Raises CannotRunError without a GPU.
    """
    device = find_gpu()
    masks(report, device, BATCH, TOKENS)
    problem = _engine_problem()
    for name, shape in MODELS.items():
        problem_here = problem or _memory_problem(shape)
        if problem_here is None:
            steps(report, device, name, shape, TOKENS, BATCHES[-1:] if report.quick else BATCHES)
        else:
            report.not_tried(f"a model of {name.upper()} on Transformers", problem_here)


def find_gpu() -> torch.device:
    """Returns the GPU. Raises CannotRunError with the reason if there is none."""
    if torch.version.cuda is None:
        raise CannotRunError(f"no GPU can be used: torch {torch.__version__} was built without CUDA")
    if not torch.cuda.is_available():
        raise CannotRunError(f"torch {torch.__version__} finds no NVIDIA GPU: see nvidia-smi")
    return torch.device("cuda")


def masks(
    report: Report,
    device: torch.device,
    batch: int,
    tokens: int,
    apply: Callable[[torch.Tensor, list[Row | None]], None] = apply_masks,
) -> None:
    """Measures masks of all sequences of a batch, from shared memory to the logits on the device.

    `gpu.masks.bB.launch_us` is the time until `apply` returns, when the engine can launch the next kernels,
    `done_us` until the device has finished. Raises AssertionError if the logits differ from those of a CPU.
    """
    words = (tokens + 31) // 32
    shared = np.frombuffer(mmap.mmap(-1, batch * words * 4), np.uint32).reshape(batch, words)
    shared[:] = np.random.default_rng(1).integers(0, 1 << 32, shared.shape, np.uint32)
    rows: list[Row | None] = [Row(RowKind.BITMASK, bits=line) for line in shared]
    logits = torch.randn(batch, tokens, generator=torch.Generator().manual_seed(1))
    expected = logits.numpy().copy()
    apply_masks(expected, rows)
    free, masked = logits.to(device), logits.to(device)
    launched, done = [], []
    for number in range(-_WARM_UP_MASKS, _QUICK_MASKS if report.quick else _MASKS):
        masked.copy_(free)
        _finish(device)
        start = time.perf_counter()
        apply(masked, rows)
        returned = time.perf_counter()
        _finish(device)
        finished = time.perf_counter()
        if number >= 0:
            launched.append((returned - start) * 1e6)
            done.append((finished - start) * 1e6)
    np.testing.assert_array_equal(masked.cpu().numpy(), expected)
    for name, samples in (("launch", launched), ("done", done)):
        report.samples(f"gpu.masks.b{batch}.{name}_us", samples, "us")
        report.figure(f"gpu.masks.b{batch}.{name}_us", summarise(samples).median, "us")


def _finish(device: torch.device) -> None:
    """Waits until the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def steps(
    report: Report,
    device: torch.device,
    name: str,
    shape: Mapping[str, int],
    tokens: int,
    batches: tuple[int, ...],
) -> None:
    """Measures steps of `HfEngine` with and without control, on a model with random weights in bfloat16.

    `tokens`: size of the vocabulary. Raises AssertionError if a text does not match its pattern.
    """
    from transformers import AutoModelForCausalLM, LlamaConfig

    from lab.measurement.engine_pairs import EnginePairs
    from pyaici import HfEngine
    from pyaici.client.runtime import Runtime
    from pyaici.engines.batching.engine import ADDED
    from pyaici.engines.engine import Request

    vocabulary = synthetic(tokens)
    torch.manual_seed(1)
    with torch.device(device):
        config = LlamaConfig(vocab_size=tokens, **shape)
        model: Any = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    numbers = random.Random(1)
    with Runtime() as runtime:
        module = runtime.upload(bundled_controllers()["regex"]).id
        with (
            HfEngine(model, None, runtime, vocabulary=vocabulary) as controlled,
            HfEngine(model, None, vocabulary=vocabulary) as free,
        ):
            for batch in batches:
                prompts = [numbers.choices(range(256, tokens), k=_PROMPT_TOKENS) for _ in range(batch)]
                requests = [Request(prompt, module, ENDLESS_WORDS) for prompt in prompts]
                pairs = EnginePairs(controlled, free, requests)
                for number in range(2 if report.quick else 1 + _RUNS):
                    results, _ = pairs.run(_QUICK_STEPS if report.quick else _STEPS)
                    for result in results:
                        assert re.fullmatch(r"( [A-Za-z]*[,.]?)+", result.text), (result.text, result.error)
                    if number == 0:  # warms up
                        pairs.clear()
                        controlled.stats.recent.clear()
                _report(report, f"gpu.hf.{name}.b{batch}", pairs.times, controlled.stats.median_ms(ADDED))


def _report(report: Report, name: str, times: tuple[list[float], list[float]], phases_ms: float) -> None:
    """Reports the figures of a batch. `phases_ms`: time of the phases that control adds."""
    controlled, free = times
    report.samples(f"{name}.controlled_ms", controlled, "ms")
    report.samples(f"{name}.free_ms", free, "ms")
    step = percentile(free, 50)
    report.figure(f"{name}.free_ms", step, "ms")
    added, low, high = paired_interval(controlled, free)
    report.figure(f"{name}.added_ratio", added / step, "ratio", target=_MAX_ADDED)
    report.figure(f"{name}.added_ratio_low", low / step, "ratio")
    report.figure(f"{name}.added_ratio_high", high / step, "ratio")
    report.figure(f"{name}.phases_ms", phases_ms, "ms")


def _engine_problem() -> str | None:
    """Returns why this machine cannot run the engine on Transformers with a controller; None if it can."""
    needed = ("transformers", "wasmtime", "msgpack", "rich")
    missing = [package for package in needed if importlib.util.find_spec(package) is None]
    if missing:
        return f"this Python has no {', '.join(missing)}"
    if "regex" not in bundled_controllers():
        return f"the controller regex has not been built: {build_cure()}"
    return None


def _memory_problem(shape: Mapping[str, int]) -> str | None:
    """Returns why a model does not fit on the GPU; None if it fits."""
    gc.collect()  # the model before
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    need = _SPARE + 2 * _parameters(shape, TOKENS)
    if need > free:
        return f"it needs {need / 2**30:.0f} GiB of the GPU's memory, and {free / 2**30:.0f} are free"
    return None


def _parameters(shape: Mapping[str, int], tokens: int) -> int:
    """Returns the number of weights, without those of the norms."""
    width = shape["hidden_size"]
    keys = width * shape["num_key_value_heads"] // shape["num_attention_heads"]
    layer = 2 * width * (width + keys) + 3 * width * shape["intermediate_size"]
    return shape["num_hidden_layers"] * layer + 2 * tokens * width
