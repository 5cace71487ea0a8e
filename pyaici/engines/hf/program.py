"""Runs a controller with a Transformers model and prints the generated text: harness/run_hf.py."""

from __future__ import annotations

import argparse
import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aicirt.system.terminal import exceptions_wait
from pyaici.engines.batching.run_request import run_request
from pyaici.engines.options import (
    MODEL,
    add_beams_option,
    add_prompt_options,
    add_record_option,
    add_sampling_options,
    add_second_option,
    add_trust_option,
    find_folder,
    naming_trust_option,
    option_group,
    read_second,
    read_vocabulary,
    run_main,
)
from pyaici.models import default_model_path
from pyaici.toolchain.sdk import install_command

if TYPE_CHECKING:
    import contextlib

    from pyaici.client.runtime import Runtime
    from pyaici.engines.hf.engine import HfEngine
    from pyaici.tokens import Vocabulary


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds all options except the controller.

    These are the options of `read_request`, and those for the model, the runtime and --record.
    """
    add_prompt_options(parser, "folder of a Transformers model")
    add_engine_options(parser)
    add_trust_option(parser)
    add_second_option(parser)
    add_beams_option(parser)
    add_record_option(parser)
    add_sampling_options(parser)


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this engine alone."""
    option_group(parser, MODEL).add_argument(
        "--device", help="device for the model, e.g. cpu or cuda:1 (default: cuda if available, else cpu)"
    )


_PACKAGES = ("torch", "transformers", "rich")


def check_packages() -> None:
    """Raises ValueError if a package of the extra `hf` is missing; the message has the pip command.

    Imports none of the packages.
    """
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ValueError(
            f"the Transformers engine is missing: {install_command('hf')} (missing: {', '.join(missing)})"
        )


def load_model(
    folder: Path, device: str | None = None, *, trust_remote_code: bool = False
) -> tuple[Any, Any]:
    """Loads the model and the tokenizer of a folder. Returns (model, tokenizer).

    The weights keep the folder's dtype. `device`: as in torch; None means cuda if available, else cpu.
    `trust_remote_code`: run Python files of the folder, if the model needs them. Raises ValueError for an
    unusable device, and OSError or ValueError for a folder that the library cannot load.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    with exceptions_wait():
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from transformers.utils import logging

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"the model cannot use the device {device!r}: {reason}; give another device, or none"
        ) from None

    logging.disable_progress_bar()  # type: ignore[no-untyped-call,unused-ignore]
    with naming_trust_option(folder):  # left to itself, the library would ask on the terminal
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code)
        model: Any = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype="auto",
            trust_remote_code=trust_remote_code,
            use_safetensors=True,  # reading other files may run code in them
        )
    return model.to(device), tokenizer


def load_second(
    second: Mapping[str, str | Path], device: str | None = None, *, trust_remote_code: bool = False
) -> dict[str, tuple[Any, Vocabulary]]:
    """Loads second models, by name, with their vocabularies. Raises as `load_model`, and VocabularyError."""
    from pyaici.tokens import load_vocabulary

    found = {}
    for name, folder in second.items():
        path = find_folder(folder, check_packages)
        model, tokenizer = load_model(path, device, trust_remote_code=trust_remote_code)
        found[name] = model, load_vocabulary(tokenizer)
    return found


def run_controller(arguments: argparse.Namespace) -> int:
    """Runs a request with Transformers; see `run_request`."""

    def check() -> Path | None:
        for each in read_second(arguments.second).values():
            find_folder(each, check_packages)
        if arguments.model is not None:
            return find_folder(arguments.model, check_packages)
        check_packages()
        return None

    def make_engine(
        folder: Path, runtime: Runtime | None, _: Vocabulary | None, stack: contextlib.ExitStack
    ) -> HfEngine:
        # the vocabulary of the engine is that of the tokenizer that the library has loaded
        trust = arguments.trust_remote_code
        model, tokenizer = load_model(folder, arguments.device, trust_remote_code=trust)
        second = load_second(read_second(arguments.second), arguments.device, trust_remote_code=trust)
        from pyaici.engines.hf.engine import HfEngine

        return HfEngine(model, tokenizer, runtime, second=second)

    return run_request(arguments, check, default_model_path, read_vocabulary, make_engine)


def main(argv: list[str] | None = None) -> int:
    """Runs harness/run_hf.py and returns the exit status."""
    return run_main("a Transformers model", add_options, run_controller, argv)
