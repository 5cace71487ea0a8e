"""Runs a controller with a Transformers model and shows what happens: `aici run`, harness/run_hf.py."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aicirt.errors import AiciError
from pyaici.bundled import find_controller

if TYPE_CHECKING:
    from pyaici.engines.hf.engine import HfEngine
    from pyaici.engines.hf.request import Request

DEFAULT_CONTROLLER = "regex"
DEFAULT_ARG = (
    r'\{\n  "name": "[A-Z][a-z]+ [A-Z][a-z]+",\n  "born": 1[5-9][0-9]{2},\n'
    r'  "known for": "[A-Za-z ,]{10,60}"\n\}'
)
DEFAULT_PROMPT = "Describe Albert Einstein in JSON: his name, his year of birth, and what he is known for."


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds what `run` reads, all but `controller`."""
    parser.add_argument("--arg", metavar="TEXT", help="the controller's argument; @FILE reads it from a file")
    parser.add_argument(
        "--prompt", metavar="TEXT", help="what the model is asked; @FILE reads it from a file"
    )
    parser.add_argument(
        "--chat",
        action=argparse.BooleanOptionalAction,
        help="put the prompt into the model's chat template (default: if it has one)",
    )
    parser.add_argument(
        "--model", metavar="PATH", help="folder of a Transformers model (default: SmolLM2-135M-Instruct)"
    )
    parser.add_argument(
        "--device", help="where the model runs, e.g. cpu or cuda:1 (default: cuda if there is one)"
    )
    parser.add_argument("--n", type=int, default=1, help="sequences to sample")
    parser.add_argument("--beams", type=int, default=1, help="search with so many beams instead of sampling")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 = most likely token (default)")
    parser.add_argument(
        "--top-p", type=float, default=1.0, help="sample from the most likely tokens of this probability"
    )
    parser.add_argument(
        "--top-k", type=int, default=0, help="sample from so many most likely tokens (0 = all)"
    )
    parser.add_argument("--seed", type=int, help="makes a run repeatable")
    parser.add_argument("--max-tokens", type=int, default=128, help="tokens after the prompt (default: 128)")


def run(arguments: argparse.Namespace) -> int:
    """Runs `arguments.controller`: a bundled controller's name, a file, or None or "none" for no control.

    With neither controller, argument nor prompt a demonstration runs. The exit status is 0, 1 if a
    sequence ended with an error, or 130 after Ctrl-C.

    Raises AiciError or ValueError for what the arguments ask in vain.
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
    wasm = None if name == "none" else find_controller(name)
    try:
        from pyaici.engines.hf.engine import HfEngine
        from pyaici.runtime import Runtime
    except ImportError as error:
        raise ValueError(f'this needs the Transformers engine: pip install "aici[hf]" ({error})') from error
    model, tokenizer = load_model(arguments.model, arguments.device)
    if wasm is None:
        return _generate(HfEngine(model, tokenizer), make_request(arguments, tokenizer, None))
    with Runtime() as runtime:
        module = runtime.upload(wasm).id
        return _generate(HfEngine(model, tokenizer, runtime), make_request(arguments, tokenizer, module))


def load_model(path: str | None, device: str | None) -> tuple[Any, Any]:
    """(model, tokenizer) from a folder, by default the one that is fetched; in the folder's own dtype.

    Raises ModelError or ValueError if there is none.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    from pyaici.models import default_model_path

    logging.disable_progress_bar()  # type: ignore[no-untyped-call,unused-ignore]
    folder = Path(path) if path is not None else default_model_path()
    if not (folder / "config.json").is_file():
        raise ValueError(
            f"{folder} is no folder of a Transformers model: it has no config.json (models are not fetched "
            "by name: download one first and give its folder)"
        )
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"--device: cannot use {device!r}: {reason}; leave --device out") from None
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    return model.to(device), AutoTokenizer.from_pretrained(folder)


def make_request(arguments: argparse.Namespace, tokenizer: Any, module: str | None) -> Request:
    from pyaici.engines.hf.request import Prompt, Request, Sampling

    text = _text_or_file(arguments.prompt)
    chat = arguments.chat
    if chat is None:
        chat = bool(getattr(tokenizer, "chat_template", None))
    prompt: Prompt = [{"role": "user", "content": text}] if chat else text
    return Request(
        prompt,
        module=module,
        arg=_text_or_file(arguments.arg or ""),
        sampling=Sampling(arguments.temperature, arguments.top_p, arguments.top_k, arguments.seed),
        n=arguments.n,
        beams=max(arguments.beams, 1),
        max_tokens=arguments.max_tokens,
    )


def _text_or_file(text: str) -> str:
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read {text[1:]!r}, the file after @: {error}") from error


def _generate(engine: HfEngine, request: Request) -> int:
    from pyaici.engines.hf.terminal import Terminal

    number = engine.add(request)
    start = time.perf_counter()
    interrupted = False
    with Terminal() as terminal:
        try:
            engine.run(on_event=terminal.show)
        except KeyboardInterrupt:
            interrupted = True
            engine.close()
            for event in engine.drain():
                terminal.show(event)
    terminal.summary(engine.stats, time.perf_counter() - start)
    if interrupted:
        return 130
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
    try:
        return run(parser.parse_args(argv))
    except (AiciError, ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
