"""The engine for models of the Hugging Face Transformers library.

Names are imported at their first use, so that the command line, which takes its options from
`pyaici.engines.hf.program`, works and is quick without torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyaici.engines.events import (
        BackTracked,
        Event,
        Finished,
        Forked,
        Log,
        Started,
        Suspended,
        TokensAppended,
        VariablesChanged,
    )
    from pyaici.engines.hf.engine import HfEngine
    from pyaici.engines.hf.engine_model import EngineModel
    from pyaici.engines.hf.logits_processor import AiciLogitsProcessor
    from pyaici.engines.hf.stats import Phase, StepStats
    from pyaici.engines.request import FinishReason, GenerationResult, Origin, Request, Sampling

_MODULES = {
    "engine": ["HfEngine"],
    "engine_model": ["EngineModel"],
    "logits_processor": ["AiciLogitsProcessor"],
    "stats": ["Phase", "StepStats"],
}
#: what all engines have in common
_SHARED = {
    "events": [
        "BackTracked",
        "Event",
        "Finished",
        "Forked",
        "Log",
        "Started",
        "Suspended",
        "TokensAppended",
        "VariablesChanged",
    ],
    "request": ["FinishReason", "GenerationResult", "Origin", "Request", "Sampling"],
}
_HOMES = {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names}
_HOMES |= {name: f"pyaici.engines.{module}" for module, names in _SHARED.items() for name in names}

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
