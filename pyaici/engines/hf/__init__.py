"""The engine for models of the Hugging Face Transformers library."""

from __future__ import annotations

from pyaici.engines.hf.engine import HfEngine
from pyaici.engines.hf.events import (
    BackTracked,
    Event,
    Finished,
    Forked,
    Log,
    Started,
    Suspended,
    TokensAppended,
)
from pyaici.engines.hf.request import FinishReason, GenerationResult, Origin, Request, Sampling
from pyaici.engines.hf.stats import Phase, StepStats

__all__ = [
    "BackTracked",
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
]
