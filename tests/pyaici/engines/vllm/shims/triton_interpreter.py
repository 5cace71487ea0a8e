"""Runs the Triton kernels of vLLM's V2 model runner on a CPU, with Triton's interpreter."""

from __future__ import annotations

import os
import sys
from typing import Any

from tests.fetch import pypi_unpacked

#: files that only a GPU needs, more than a third of the package
_LEFT_OUT = ("triton/backends/nvidia/bin/", "triton/backends/nvidia/lib/")
#: tokens in a block of vLLM's `gumbel_sample`
_BLOCK = 1024


def install() -> None:
    """Enables the V2 runner in this process, and imports vLLM. Call it before vLLM is imported."""
    assert "vllm" not in sys.modules
    os.environ["TRITON_INTERPRET"] = "1"
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "1"
    sys.path.insert(0, str(pypi_unpacked("triton", leave_out=_LEFT_OUT)))
    import triton.backends
    from triton.runtime.interpreter import InterpreterBuilder

    class Driver:
        @staticmethod
        def is_active() -> bool:
            return True

    triton.backends.backends["cpu"] = triton.backends.Backend(compiler=None, driver=Driver)
    for name, position in (("create_masked_load", 1), ("create_masked_store", 2)):
        setattr(InterpreterBuilder, name, _with_bool_mask(getattr(InterpreterBuilder, name), position))
    _patch_once()
    _sample_in_large_blocks()


def _patch_once() -> None:
    """Patches the language once in each run of a kernel, not again when the kernel calls a function."""
    from triton import language
    from triton.runtime import interpreter

    patch, restore = interpreter._patch_lang, interpreter._LangPatchScope.restore
    visible: dict[Any, set[str]] = {}
    patched: set[str] = set()

    def patch_lang(fn: Any) -> Any:
        if fn not in visible:
            values = list(fn.__globals__.values())
            visible[fn] = {lang.__name__ for lang in (language, language.core) if lang in values}
        if visible[fn] and visible[fn] <= patched:
            return None  # of a function, which does not use it
        patched.update(visible[fn])
        return patch(fn)

    def restore_lang(scope: Any) -> None:
        restore(scope)
        patched.clear()

    interpreter._patch_lang = patch_lang
    interpreter._LangPatchScope.restore = restore_lang


def _sample_in_large_blocks() -> None:
    """Samples from 3 blocks of the vocabulary, not 48: small ones take the interpreter nearly as long."""
    from vllm.v1.worker.gpu.sample.gumbel import gumbel_sample

    code = gumbel_sample.__code__
    assert code.co_consts.count(_BLOCK) == 1
    constants = tuple(16 * _BLOCK if value == _BLOCK else value for value in code.co_consts)
    gumbel_sample.__code__ = code.replace(co_consts=constants)


def _with_bool_mask(method: Any, position: int) -> Any:
    """Converts integer masks to booleans, since the interpreter would use them as indices."""
    import numpy as np

    def masked(self: Any, *args: Any, **kwargs: Any) -> Any:
        mask = args[position]
        if getattr(mask.data, "dtype", None) != np.bool_:
            mask.data = np.asarray(mask.data).astype(np.bool_)
        return method(self, *args, **kwargs)

    return masked
