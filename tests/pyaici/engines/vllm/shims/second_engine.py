"""Lets one process make an engine after another one, also after n-gram speculative decoding, and faster."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any


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
