"""The engine for GGUF models, on llama.cpp.

Names are imported at first use, so that the command line stays fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyaici.engines.llama.engine import LlamaEngine
    from pyaici.engines.llama.library import Library, load_library
    from pyaici.engines.llama.model import LlamaModel

_HOMES = {
    "Library": "library",
    "LlamaEngine": "engine",
    "LlamaModel": "model",
    "load_library": "library",
}

__all__ = ["Library", "LlamaEngine", "LlamaModel", "load_library"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
