"""Opens an engine: finds a model, and loads it into the engine that runs it, beside a runtime."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pyaici.engines.options import EngineKind, engine_of, find_folder

if TYPE_CHECKING:
    from pyaici.client.runtime import Runtime
    from pyaici.engines.batching.engine import BatchingEngine
    from pyaici.engines.vllm.engine import VllmEngine

_log = logging.getLogger("aicirt.engine")


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How an engine runs its model. Each engine ignores what it does not have."""

    #: Transformers: device for the model, e.g. cpu or cuda:1; None = cuda if available
    device: str | None = None
    #: Transformers, vLLM: run Python files of the model's folder
    trust_remote_code: bool = False
    #: llama.cpp: threads of the model; None = one for each processor core but one
    threads: int | None = None
    #: llama.cpp: a libllama.so to use instead of the package's
    llama_library: Path | None = None
    #: llama.cpp, Transformers: ended sequences that stay in the cache, for prompts that begin as they do
    keep: int = 0
    #: llama.cpp, Transformers: most tokens of the key-value cache
    cache_tokens: int | Literal["auto"] = "auto"
    #: llama.cpp, Transformers: second models by name, each a file, folder or name as for `open_engine`
    second: Mapping[str, str | Path] = field(default_factory=dict)


@contextlib.contextmanager
def open_engine(
    model: str | Path | None = None,
    *,
    engine: EngineKind | None = None,
    socket: str | Path | None = None,
    options: EngineOptions = EngineOptions(),
) -> Iterator[BatchingEngine | VllmEngine]:
    """Yields an engine with a model and a runtime; ends all three after the block.

    `model`: a GGUF file, the folder of a Transformers model, or the name of one on the Hugging Face Hub
    (OWNER/NAME); None = SmolLM2-135M-Instruct, which is fetched once. `engine`: by default llama.cpp for a
    GGUF file, else Transformers. `socket`: that of a running daemon (default: $AICI_SOCKET); without one,
    starts a daemon.

    Raises AiciError, OSError or ValueError if the model cannot be loaded; the message has the remedy.
    """
    from pyaici.client.control import Daemon
    from pyaici.client.runtime import Runtime

    kind = engine or engine_of(None if model is None else str(model))
    if kind == "vllm" and options.second:
        raise ValueError("vLLM runs one model: second models need the engine llama or hf")
    path = find_model(model, kind)
    with contextlib.ExitStack() as stack:
        socket = socket or os.environ.get("AICI_SOCKET")
        if not socket:
            socket = stack.enter_context(Daemon()).socket_path
        runtime = stack.enter_context(Runtime(socket))
        if kind == "vllm":
            stack.callback(_set_socket, os.environ.get("AICI_SOCKET"))
        loaded = load_engine(path, kind, runtime, Path(socket), options)
        if kind == "llama":
            from pyaici.engines.llama.engine import LlamaEngine

            assert isinstance(loaded, LlamaEngine)
            for each in loaded.models:
                stack.callback(each.close)
        stack.callback(loaded.close)
        yield loaded


def find_model(model: str | Path | None, kind: EngineKind) -> Path:
    """Returns the path of a model, see `open_engine`, for an engine of this kind. Raises as it does.

    First checks a path, then that the engine's packages are installed, and only then downloads anything.
    """
    if model is not None and kind == "llama":
        from pyaici.engines.llama.program import check_file

        path = check_file(model)
        _check_packages(kind)
        return path
    if model is not None:
        return find_folder(model, partial(_check_packages, kind))
    _check_packages(kind)
    from pyaici.models import default_gguf_path, default_model_path

    return default_gguf_path() if kind == "llama" else default_model_path()


def load_engine(
    path: Path, kind: EngineKind, runtime: Runtime, socket: Path, options: EngineOptions
) -> BatchingEngine | VllmEngine:
    """Loads the model at `path` into an engine; takes seconds to minutes.

    `path`: from `find_model`. `runtime`: used by the engine alone, connected to the aicirt at `socket`.
    Raises as `open_engine` does.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # otherwise OpenMP's idle threads take processor time
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is downloaded from here on
    if kind == "llama":
        from pyaici.engines.llama.engine import LlamaEngine
        from pyaici.engines.llama.library import load_library
        from pyaici.engines.llama.model import LlamaModel
        from pyaici.engines.llama.program import choose_threads, load_second

        library = load_library(options.llama_library)
        return LlamaEngine(
            LlamaModel(library, path),
            runtime,
            keep=options.keep,
            cache_tokens=options.cache_tokens,
            threads=choose_threads(options.threads, _log.info),
            second=load_second(options.second, library),
        )
    if kind == "hf":
        from pyaici.engines.hf.program import load_model
        from pyaici.engines.hf.program import load_second as load_others

        model, tokenizer = load_model(path, options.device, trust_remote_code=options.trust_remote_code)
        from pyaici.engines.hf.engine import HfEngine

        second = load_others(options.second, options.device, trust_remote_code=options.trust_remote_code)
        return HfEngine(
            model,
            tokenizer,
            runtime,
            keep=options.keep,
            cache_tokens=options.cache_tokens,
            second=second,
        )
    from pyaici.engines.vllm.program import check_plugin, load_llm

    check_plugin()
    _set_socket(str(socket))  # where our plugin in vLLM finds the controllers
    llm = load_llm(path, trust_remote_code=options.trust_remote_code)
    from pyaici.engines.vllm.engine import VllmEngine

    return VllmEngine(llm, runtime)


def _set_socket(socket: str | None) -> None:
    os.environ.pop("AICI_SOCKET", None)
    if socket is not None:
        os.environ["AICI_SOCKET"] = socket


def _check_packages(kind: EngineKind) -> None:
    """Raises ValueError if a package of an engine is missing; the message has the command for it."""
    if kind == "llama":
        from pyaici.engines.llama.program import check_packages
    elif kind == "hf":
        from pyaici.engines.hf.program import check_packages
    else:
        from pyaici.engines.vllm.program import check_packages
    check_packages()
