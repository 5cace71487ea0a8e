"""Runs a controller with a Transformers model and shows what happens: `aici run`, harness/run_hf.py.

What may be refused comes first, the quickest first: the options, the controller, its argument. The model's
weights, and the libraries that run it, take seconds and come last.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aicirt.command import run_command
from aicirt.errors import AiciError, ArgumentError, VocabularyError
from pyaici.bundled import find_controller
from pyaici.engines.hf.load import check_folder, check_packages, load_model
from pyaici.engines.hf.options import add_options, read_request
from pyaici.models import default_model_path

if TYPE_CHECKING:
    from pathlib import Path

    from pyaici.engines.hf.engine import HfEngine
    from pyaici.engines.hf.request import Prompt, Request
    from pyaici.runtime import Runtime

DEFAULT_CONTROLLER = "regex"
DEFAULT_ARG = (
    r'\{\n  "name": "[A-Z][a-z]+ [A-Z][a-z]+",\n  "born": 1[5-9][0-9]{2},\n'
    r'  "known for": "[A-Za-z ,]{10,60}"\n\}'
)
DEFAULT_PROMPT = "Describe Albert Einstein in JSON: his name, his year of birth, and what he is known for."


def run(arguments: argparse.Namespace) -> int:
    """Runs `arguments.controller`: a bundled controller's name, a file, or None or "none" for no control.

    With neither controller, argument nor prompt a demonstration runs. The exit status is 0, or 1 if a
    sequence ended with an error.

    Raises AiciError, OSError or ValueError for what the arguments ask in vain; KeyboardInterrupt when it has
    shown what there was by then.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # with other work on the cores OpenMP's threads spin
    if arguments.controller is None and arguments.arg is None and arguments.prompt is None:
        arguments.controller, arguments.arg, arguments.prompt = (
            DEFAULT_CONTROLLER,
            DEFAULT_ARG,
            DEFAULT_PROMPT,
        )
    if arguments.prompt is None:
        raise ValueError("give a prompt: --prompt TEXT")
    name = arguments.controller or "none"
    if name == "none" and arguments.arg is not None:
        raise ValueError("--arg is a controller's argument, but there is no controller")
    request = read_request(arguments)
    wasm = None if name == "none" else find_controller(name)
    check_packages()
    folder = None if arguments.model is None else check_folder(arguments.model)
    with contextlib.ExitStack() as stack:
        runtime: Runtime | None = None
        if wasm is not None:
            from pyaici.runtime import Runtime

            runtime = stack.enter_context(Runtime(arguments.socket))
            request = replace(request, module=runtime.upload(wasm).id)
        folder = folder or default_model_path()
        if runtime is not None:
            try:
                _try_argument(runtime, request, folder)
            except ArgumentError as error:
                raise error if arguments.arg is not None else _with_hint(error) from None
        model, tokenizer = load_model(folder, arguments.device)
        from pyaici.engines.hf.engine import HfEngine

        request = replace(request, prompt=_prompt(str(request.prompt), arguments.chat, tokenizer))
        return _generate(HfEngine(model, tokenizer, runtime), request)


def _with_hint(error: ArgumentError) -> ArgumentError:
    """For those who gave no argument: they may not know that there is one."""
    return ArgumentError(f"{error.message}; --arg TEXT or --arg @FILE gives one", **error.detail)


def _try_argument(runtime: Runtime, request: Request, folder: Path) -> None:
    """Lets the controller read its argument, for which the tokenizer is needed but no model.

    Raises ArgumentError if it refuses it, and every other error that its constructor can end with.
    """
    from pyaici.tokens import load_vocabulary

    assert request.module is not None
    try:
        vocabulary = load_vocabulary(folder)
    except VocabularyError:
        return  # what the library makes of this folder may be another matter: the engine will say
    runtime.register(vocabulary)
    runtime.prepare(request.module, request.arg, capabilities=request.capabilities)


def _prompt(text: str, chat: bool | None, tokenizer: Any) -> Prompt:
    """The text, or a chat that begins with it. `chat` None: if the tokenizer has a template for chats."""
    if chat is None:
        chat = bool(getattr(tokenizer, "chat_template", None))
    return [{"role": "user", "content": text}] if chat else text


def _generate(engine: HfEngine, request: Request) -> int:
    from pyaici.engines.hf.terminal import Terminal

    number = engine.add(request)
    start = time.perf_counter()
    terminal = Terminal()
    try:
        with terminal:
            engine.run(on_event=terminal.show)
    except KeyboardInterrupt:
        terminal.summary(engine.stats, time.perf_counter() - start)
        raise
    terminal.summary(engine.stats, time.perf_counter() - start)
    return int(any(result.error is not None for result in engine.results(number)))


def main(argv: list[str] | None = None) -> int:
    """The program of its own."""
    parser = argparse.ArgumentParser(
        description="Generates text with a Transformers model under the control of a WebAssembly program.",
        epilog="Without arguments it shows a demonstration.",
    )
    parser.add_argument(
        "--controller", metavar="NAME_OR_WASM", help="a bundled controller, a .wasm file, or none (default)"
    )
    add_options(parser)
    arguments = parser.parse_args(argv)
    return run_command(parser.prog, lambda: run(arguments), (AiciError, ValueError, OSError))
