"""Lets one process make an engine after another one has used Numba, as n-gram speculative decoding does."""

from __future__ import annotations

import sys
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
