"""Runs a controller with a Transformers model and prints the generated text: harness/run_hf.py."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pyaici.engines.options import (
    add_prompt_options,
    add_record_option,
    add_sampling_options,
    check_folder,
    generate,
    keep_recording,
    read_options,
    run_main,
    try_argument,
)
from pyaici.engines.prompts import as_prompt
from pyaici.models import default_model_path

if TYPE_CHECKING:
    from pyaici.client.runtime import Runtime
    from pyaici.engines.engine import Request
    from pyaici.engines.hf.engine import HfEngine
    from pyaici.recording.recorder import RecordingRuntime


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds all options except the controller.

    These are the options of `read_request`, and --model, --device, --socket and --record.
    """
    add_prompt_options(parser, "Transformers")
    parser.add_argument(
        "--device", help="device for the model, e.g. cpu or cuda:1 (default: cuda if available, else cpu)"
    )
    parser.add_argument(
        "--beams",
        type=int,
        default=1,
        help="use beam search with this many beams instead of sampling (default: 1, no search)",
    )
    add_record_option(parser)
    add_sampling_options(parser)


_PACKAGES = ("torch", "transformers", "rich")


def check_packages() -> None:
    """Raises ValueError if a package of the extra `hf` is missing; the message has the pip command.

    Imports none of the packages.
    """
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ValueError(
            f'the Transformers engine is missing: pip install "aici[hf]" (missing: {", ".join(missing)})'
        )


def load_model(folder: Path, device: str | None = None) -> tuple[Any, Any]:
    """Loads the model and the tokenizer of a folder. Returns (model, tokenizer).

    The weights keep the folder's dtype. `device`: as in torch; None means cuda if available, else cpu. Raises
    ValueError for an unusable device, and OSError or ValueError for a folder that the library cannot load.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import torch

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"--device: cannot use {device!r}: {reason}; give another device, or leave --device out"
        ) from None

    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call,unused-ignore]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    return model.to(device), tokenizer


def run(arguments: argparse.Namespace) -> int:
    """Runs `arguments.controller` and returns the exit status: 0, or 1 if a sequence ended with an error.

    The controller is a script, a Wasm file, a bundled controller's name, or None or "none" for no control.
    With neither controller, argument nor prompt, runs a demonstration.

    Raises AiciError, OSError or ValueError if the arguments cannot be satisfied. On KeyboardInterrupt, shows
    the output so far and then raises it.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # OpenMP's threads spin when other work uses the cores
    request, wasm = read_options(arguments)
    check_packages()
    folder = None if arguments.model is None else check_folder(arguments.model)
    with contextlib.ExitStack() as stack:
        runtime: Runtime | None = None
        if wasm is not None:
            runtime = stack.enter_context(_runtime(arguments))
            request = replace(request, module=runtime.upload(wasm).id)
        folder = folder or default_model_path()
        if runtime is not None:
            try_argument(runtime, request, arguments, folder)
        model, tokenizer = load_model(folder, arguments.device)
        from pyaici.engines.hf.engine import HfEngine

        request = replace(request, prompt=as_prompt(str(request.prompt), arguments.chat, tokenizer))
        engine = HfEngine(model, tokenizer, runtime)
        if arguments.record is None:
            return generate(engine, request, engine.stats.table)
        return _record(arguments, engine, cast("RecordingRuntime", runtime), request)


def _runtime(arguments: argparse.Namespace) -> Runtime:
    if arguments.record is None:
        from pyaici.client.runtime import Runtime

        return Runtime(arguments.socket)
    from pyaici.recording.recorder import RecordingRuntime

    return RecordingRuntime(arguments.socket)


def _record(
    arguments: argparse.Namespace, engine: HfEngine, runtime: RecordingRuntime, request: Request
) -> int:
    """Generates with log-probabilities, writes the recording, and returns the exit status."""
    runtime.record(arguments.controller, request.max_tokens)
    status = generate(engine, replace(request, logprobs=True), engine.stats.table)
    keep_recording(runtime, arguments)
    return status


def main(argv: list[str] | None = None) -> int:
    """Runs harness/run_hf.py and returns the exit status."""
    return run_main("a Transformers model", add_options, run, argv)
