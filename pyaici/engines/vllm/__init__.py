"""Controllers in vLLM, as a plugin and as an engine.

vLLM finds the plugin by its entry points. `VllmEngine` is for programs that need every verb and events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyaici.engines.vllm.engine import VllmEngine

__all__ = ["VllmEngine"]


def __getattr__(name: str) -> Any:
    if name != "VllmEngine":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # vLLM imports this package in each of its processes, and those do not need the engine
    from pyaici.engines.vllm.engine import VllmEngine

    return VllmEngine
