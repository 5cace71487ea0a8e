"""Runs a controller with a Transformers model and shows what happens: `aici run`, harness/run_hf.py.

What may be refused comes first, the quickest first: the options, the controller, its argument. The model's
weights, and the libraries that run it, take seconds and come last.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from aicirt.contract.errors import AiciError
from aicirt.system.terminal import run_command
from pyaici.engines.attempt import try_argument
from pyaici.engines.hf.load import check_packages, load_model
from pyaici.engines.hf.options import add_options
from pyaici.engines.options import (
    CONTROLLER_HELP,
    check_folder,
    controller_file,
    fill_in,
    given_argument,
    read_request,
)
from pyaici.engines.prompts import as_prompt
from pyaici.engines.recording_option import check_record, keep_recording
from pyaici.engines.show import generate
from pyaici.models import default_model_path

if TYPE_CHECKING:
    from pyaici.engines.hf.engine import HfEngine
    from pyaici.engines.request import Request
    from pyaici.runtime import Runtime
    from pyaici.testing.recorder import RecordingRuntime


def run(arguments: argparse.Namespace) -> int:
    """Runs `arguments.controller`: a script, a Wasm file, a bundled controller's name, or None or "none" for
    no control.

    With neither controller, argument nor prompt a demonstration runs. The exit status is 0, or 1 if a
    sequence ended with an error.

    Raises AiciError, OSError or ValueError for what the arguments ask in vain; KeyboardInterrupt when it has
    shown what there was by then.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # with other work on the cores OpenMP's threads spin
    fill_in(arguments)
    name = arguments.controller
    request = read_request(arguments)
    check_record(arguments)
    wasm = None if name == "none" else controller_file(name)
    check_packages()
    folder = None if arguments.model is None else check_folder(arguments.model)
    with contextlib.ExitStack() as stack:
        runtime: Runtime | None = None
        if wasm is not None:
            runtime = stack.enter_context(_runtime(arguments))
            request = replace(request, module=runtime.upload(wasm).id)
        folder = folder or default_model_path()
        if runtime is not None:
            assert request.module is not None
            given = given_argument(arguments, request)
            try_argument(runtime, request.module, given, folder, request.capabilities)
        model, tokenizer = load_model(folder, arguments.device)
        from pyaici.engines.hf.engine import HfEngine

        request = replace(request, prompt=as_prompt(str(request.prompt), arguments.chat, tokenizer))
        engine = HfEngine(model, tokenizer, runtime)
        if arguments.record is None:
            return generate(engine, request, engine.stats.table)
        return _record(arguments, engine, cast("RecordingRuntime", runtime), request)


def _runtime(arguments: argparse.Namespace) -> Runtime:
    if arguments.record is None:
        from pyaici.runtime import Runtime

        return Runtime(arguments.socket)
    from pyaici.testing.recorder import RecordingRuntime

    return RecordingRuntime(arguments.socket)


def _record(
    arguments: argparse.Namespace, engine: HfEngine, runtime: RecordingRuntime, request: Request
) -> int:
    """As `generate`; then the recording is written."""
    runtime.record(arguments.controller, request.max_tokens)
    status = generate(engine, replace(request, logprobs=True), engine.stats.table)
    keep_recording(runtime, arguments)
    return status


def main(argv: list[str] | None = None) -> int:
    """The program of its own."""
    parser = argparse.ArgumentParser(
        description="Generates text with a Transformers model under the control of a script or a "
        "WebAssembly program.",
        epilog="Without arguments it shows a demonstration.",
    )
    parser.add_argument("--controller", metavar="NAME_OR_FILE", help=f"{CONTROLLER_HELP}, or none (default)")
    add_options(parser)
    arguments = parser.parse_args(argv)
    return run_command(parser.prog, lambda: run(arguments), (AiciError, ValueError, OSError))
