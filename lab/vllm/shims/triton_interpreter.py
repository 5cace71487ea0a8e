"""Runs the Triton kernels of vLLM's V2 model runner on a CPU, with Triton's interpreter."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
import sys
from typing import Any

from lab.system.fetch import pypi_unpacked

#: files that only a GPU needs, more than a third of the package
_LEFT_OUT = ("triton/backends/nvidia/bin/", "triton/backends/nvidia/lib/")
#: tokens in the blocks of vLLM's kernels that read logits
_BLOCKS = {1024, 8192}
#: the power of two above the number of tokens of all models in these tests
_VOCABULARY = 1 << 16


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
    _interpret_faster()
    _use_large_blocks()


def _patch_once() -> None:
    """Patches the language once in this process, where only kernels use it, not in each run of a kernel."""
    from triton import language
    from triton.runtime import interpreter

    patch = interpreter._patch_lang
    visible: dict[Any, set[str]] = {}
    patched: set[str] = set()

    def patch_lang(fn: Any) -> Any:
        if fn not in visible:
            values = list(fn.__globals__.values())
            visible[fn] = {lang.__name__ for lang in (language, language.core) if lang in values}
        if visible[fn] and visible[fn] <= patched:
            return interpreter._LangPatchScope()
        patched.update(visible[fn])
        return patch(fn)

    interpreter._patch_lang = patch_lang
    interpreter._LangPatchScope.restore = lambda scope: None


def _interpret_faster() -> None:
    """Leaves out what takes a third of the time: checks for overflows, and a new table for each value."""
    from triton.runtime import interpreter

    builder = interpreter.interpreter_builder
    builder.options = dataclasses.replace(builder.options, sanitize_overflow=False)
    find = interpreter._get_np_dtype
    find_once = functools.cache(find)
    interpreter._get_np_dtype = lambda dtype: (
        find(dtype) if dtype.scalar.is_ptr() else find_once(dtype.scalar)  # pointers have no hash
    )


def _use_large_blocks() -> None:
    """Computes with the whole vocabulary, not 6 or 48 blocks: one takes the interpreter about as long."""
    from vllm.v1.worker.gpu import structured_outputs
    from vllm.v1.worker.gpu.sample.gumbel import apply_temperature, gumbel_sample
    from vllm.v1.worker.gpu.spec_decode.rejection_sampler_utils import rejection_sample

    functions = [apply_temperature, gumbel_sample, rejection_sample]
    if hasattr(structured_outputs, "GRAMMAR_BITMASK_BLOCK_SIZE"):
        structured_outputs.GRAMMAR_BITMASK_BLOCK_SIZE = _VOCABULARY
    else:  # vLLM 0.32
        masks = structured_outputs.StructuredOutputsWorker.apply_grammar_bitmask
        functions.append(inspect.unwrap(masks))
    for function in functions:
        code = function.__code__
        assert set(code.co_consts) & _BLOCKS, function
        constants = tuple(_VOCABULARY if value in _BLOCKS else value for value in code.co_consts)
        function.__code__ = code.replace(co_consts=constants)


def _with_bool_mask(method: Any, position: int) -> Any:
    """Converts integer masks to booleans, since the interpreter would use them as indices."""
    import numpy as np

    def masked(self: Any, *args: Any, **kwargs: Any) -> Any:
        mask = args[position]
        if getattr(mask.data, "dtype", None) != np.bool_:
            mask.data = np.asarray(mask.data).astype(np.bool_)
        return method(self, *args, **kwargs)

    return masked
