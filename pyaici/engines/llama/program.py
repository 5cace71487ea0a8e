"""Runs a controller with a GGUF model and prints the generated text: harness/run_llama.py."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from aicirt.system.resources import default_thread_count, usable_cpus
from aicirt.system.terminal import show
from pyaici.engines.batching.run_request import run_request
from pyaici.engines.options import (
    MODEL,
    add_beams_option,
    add_prompt_options,
    add_record_option,
    add_sampling_options,
    add_second_option,
    option_group,
    read_second,
    run_main,
)
from pyaici.models.default import default_gguf_path
from pyaici.toolchain.sdk import install_command

if TYPE_CHECKING:
    import contextlib

    from pyaici.client.runtime import Runtime
    from pyaici.engines.llama.engine import LlamaEngine
    from pyaici.engines.llama.library import Library
    from pyaici.engines.llama.model import LlamaModel
    from pyaici.tokens import Vocabulary

_PACKAGES = ("jinja2", "rich", "tokenizers")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds all options except the controller."""
    add_prompt_options(parser, "GGUF file of a model")
    add_engine_options(parser)
    add_second_option(parser)
    add_beams_option(parser)
    add_record_option(parser)
    add_sampling_options(parser)


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this engine alone."""
    group = option_group(parser, MODEL)
    group.add_argument(
        "--threads",
        type=int,
        metavar="N",
        help="threads of llama.cpp; more than there are idle processors make it slow (default: one for each "
        f"processor core but one, on this machine {default_thread_count()})",
    )
    group.add_argument(
        "--llama-library",
        type=Path,
        metavar="PATH",
        help="a libllama.so that you have built, e.g. for CUDA (default: that of the package xllamacpp)",
    )


def choose_threads(given: int | None, tell: Callable[[str], object]) -> int:
    """Returns the number of threads of the model, by default `default_thread_count`.

    Tells the user the number, and whether it is larger than the number of usable processors.
    """
    threads = given or default_thread_count()
    line = f"llama.cpp uses {threads} thread{'s' * (threads != 1)}"
    if threads > max(usable := usable_cpus(), 1):
        line += f", more than the {usable:g} usable processors: they wait for each other, which is slow"
    tell(line)
    return threads


def check_packages() -> None:
    """Raises ValueError if a package of the extra `llama` is missing; the message has the remedy."""
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ValueError(
            f"the engine for GGUF models is incomplete: {install_command('llama')} (missing: "
            f"{', '.join(missing)})"
        )


def run_controller(arguments: argparse.Namespace) -> int:
    """Runs a request with llama.cpp; see `run_request`."""
    from pyaici.engines.llama.library import load_library

    def check() -> Path | None:
        file = None if arguments.model is None else check_file(arguments.model)
        if arguments.threads is not None and arguments.threads < 1:
            raise ValueError(f"--threads is {arguments.threads}; it must be at least 1")
        for each in read_second(arguments.second).values():
            check_file(each)
        check_packages()
        load_library(arguments.llama_library)
        return file

    def make_engine(
        path: Path, runtime: Runtime | None, vocabulary: Vocabulary | None, stack: contextlib.ExitStack
    ) -> LlamaEngine:
        from pyaici.engines.llama.engine import LlamaEngine
        from pyaici.engines.llama.model import LlamaModel

        library = load_library(arguments.llama_library)
        model = stack.enter_context(LlamaModel(library, path))
        second = load_second(read_second(arguments.second), library)
        for each, _ in second.values():
            stack.callback(each.close)
        known = None if vocabulary is None else vocabulary.cut(model.num_tokens)
        threads = choose_threads(arguments.threads, partial(show, file=sys.stderr))
        return stack.enter_context(
            LlamaEngine(model, runtime, vocabulary=known, threads=threads, second=second)
        )

    def read_vocabulary(path: Path) -> Vocabulary:
        """Returns the vocabulary that the engine registers, with what the chat template writes."""
        from pyaici.engines.llama.model import load_tokenizer
        from pyaici.engines.turns import with_turns
        from pyaici.tokens import load_vocabulary

        vocabulary = load_vocabulary(path)
        with load_tokenizer(load_library(arguments.llama_library), path) as model:
            return with_turns(vocabulary.cut(model.num_tokens), model.tokenizer)

    return run_request(arguments, check, default_gguf_path, read_vocabulary, make_engine)


def load_second(
    second: Mapping[str, str | Path], library: Library
) -> dict[str, tuple[LlamaModel, Vocabulary]]:
    """Loads second models, by name, with their vocabularies. Raises ValueError, VocabularyError."""
    from pyaici.engines.llama.model import LlamaModel
    from pyaici.tokens import load_vocabulary

    files = {name: check_file(path) for name, path in second.items()}
    return {name: (LlamaModel(library, file), load_vocabulary(file)) for name, file in files.items()}


def check_file(path: str | Path) -> Path:
    """Returns the path of a GGUF file. Raises ValueError if there is none."""
    file = Path(path)
    if file.is_dir():
        found = sorted(file.glob("*.gguf"))
        if len(found) == 1:
            return found[0]
        names = ", ".join(each.name for each in found[:5])
        raise ValueError(
            f"the model {file} is a folder with {len(found)} GGUF files ({names}); name one of them"
            if found
            else f"the model's folder {file} has no GGUF file; for a Transformers model, choose the engine hf"
        )
    if not file.is_file():
        raise ValueError(
            f"there is no file {file}; name the GGUF file of a model, or no model for the default"
        )
    return file


def main(argv: list[str] | None = None) -> int:
    """Runs harness/run_llama.py and returns the exit status."""
    return run_main("a GGUF model", add_options, run_controller, argv)
