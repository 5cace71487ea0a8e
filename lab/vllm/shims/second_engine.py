"""Lets one process make an engine after another one, also after n-gram speculative decoding, and faster."""

from __future__ import annotations

import contextlib
import copy
import sys
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from pyaici.tokens.vocabulary import Vocabulary


def hide_functions_of_llvmlite() -> None:
    """Makes an object of Numba raise AttributeError for `__dict__`, which it would look up as a function.

    vLLM reads `__dict__` of every object in every module.
    """
    module = sys.modules.get("llvmlite.binding.ffi")
    if module is None or hasattr(module, "_aici_find"):
        return
    wrapper: Any = type(module.lib)
    module._aici_find = find = wrapper.__getattr__  # type: ignore[attr-defined]

    def find_function(self: Any, name: str) -> Any:
        if name == "__dict__":
            raise AttributeError(name)
        return find(self, name)

    wrapper.__getattr__ = find_function


def inspect_models_here() -> None:
    """Has vLLM look at a model's class in this process. By default it starts one that imports vLLM: 10 s."""
    from vllm.model_executor.models import registry

    registry._run_in_subprocess = lambda function: function()


@contextlib.contextmanager
def kernels_replaced_once() -> Iterator[None]:
    """Engines that are made in this context replace no kernels if this process has replaced them.

    vLLM would wrap the replacements again, after half a second in which it looks for kernels in all modules.
    """
    from vllm.platforms.cpu import CpuPlatform
    from vllm.triton_utils.dispatcher import _registry

    original = CpuPlatform.__dict__["register_triton_kernel_overrides"]

    def register_triton_kernel_overrides(cls: Any) -> None:
        if not _registry:
            original.__func__(cls)

    CpuPlatform.register_triton_kernel_overrides = classmethod(register_triton_kernel_overrides)
    try:
        yield
    finally:
        CpuPlatform.register_triton_kernel_overrides = original


def load_vocabularies_once() -> None:
    """Keeps the vocabularies of engines in this process. A tokenizer's is loaded in half a second."""
    from pyaici.engines import connection

    load = connection.load_vocabulary
    if hasattr(load, "kept"):
        return
    kept: dict[tuple[Any, ...], Vocabulary] = {}

    def load_once(source: Any, **options: Any) -> Vocabulary:
        key = (getattr(source, "name_or_path", source), repr(options))
        if key not in kept:
            kept[key] = load(source, **options)
        return kept[key]

    load_once.kept = kept  # type: ignore[attr-defined]
    connection.load_vocabulary = load_once


#: copies of tokenizers by the folder of the model
_COPIES: dict[str, list[Any]] = {}


@contextlib.contextmanager
def tokenizers_copied_once() -> Iterator[None]:
    """An engine that is made in this context uses the copies of tokenizers that earlier ones have left.

    vLLM makes two for each engine, for its threads, which takes half a second.
    """
    from vllm.tokenizers import hf

    used: Counter[str] = Counter()

    def deepcopy(tokenizer: Any) -> Any:
        name = tokenizer.name_or_path
        copies = _COPIES.setdefault(name, [])
        used[name] += 1
        if used[name] > len(copies):
            copies.append(copy.deepcopy(tokenizer))
        return copies[used[name] - 1]

    hf.copy = SimpleNamespace(copy=copy.copy, deepcopy=deepcopy)
    try:
        yield
    finally:
        hf.copy = copy
