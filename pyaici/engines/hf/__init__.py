"""The engine for models of the Hugging Face Transformers library.

Names are imported at first use. The command line takes its options from `pyaici.engines.hf.program`, and so
stays fast and works without torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyaici.engines.batching.engine import Phase, StepStats
    from pyaici.engines.batching.histories import EngineModel
    from pyaici.engines.engine import (
        BackTracked,
        Event,
        Finished,
        FinishReason,
        Forked,
        GenerationResult,
        Log,
        Origin,
        Request,
        Sampling,
        Started,
        Suspended,
        TokensAppended,
        VariablesChanged,
    )
    from pyaici.engines.hf.engine import HfEngine
    from pyaici.engines.hf.logits_processor import AiciLogitsProcessor

_MODULES = {
    "engine": ["HfEngine"],
    "logits_processor": ["AiciLogitsProcessor"],
}
#: names common to all engines, from pyaici.engines.engine
_SHARED = [
    "BackTracked",
    "Event",
    "FinishReason",
    "Finished",
    "Forked",
    "GenerationResult",
    "Log",
    "Origin",
    "Request",
    "Sampling",
    "Started",
    "Suspended",
    "TokensAppended",
    "VariablesChanged",
]
_HOMES = {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names}
_HOMES["EngineModel"] = "pyaici.engines.batching.histories"
_HOMES |= dict.fromkeys(["Phase", "StepStats"], "pyaici.engines.batching.engine")
_HOMES |= dict.fromkeys(_SHARED, "pyaici.engines.engine")

__all__ = [
    "AiciLogitsProcessor",
    "BackTracked",
    "EngineModel",
    "Event",
    "FinishReason",
    "Finished",
    "Forked",
    "GenerationResult",
    "HfEngine",
    "Log",
    "Origin",
    "Phase",
    "Request",
    "Sampling",
    "Started",
    "StepStats",
    "Suspended",
    "TokensAppended",
    "VariablesChanged",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
