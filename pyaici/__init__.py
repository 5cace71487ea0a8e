"""Steers language models token by token with controllers that run outside the engine, in aicirt.

The public names are those of `__all__` here, the errors of `pyaici.errors`, and the modules that
docs/python.md lists. Everything else may change without notice. Names are imported at their first use, so
that `import pyaici` is quick, and an engine's library is needed only for its engine.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import aicirt  # noqa: F401 - raises ImportError where the platform is not Linux

if TYPE_CHECKING:
    from aicirt.contract.abi import RowKind, Verb
    from aicirt.contract.errors import AiciError
    from aicirt.contract.messages import StepInput
    from aicirt.contract.modules import ControllerInfo
    from pyaici.client.arguments import ALL, MASK_ONLY, Capabilities
    from pyaici.client.masks import apply_masks, apply_row
    from pyaici.client.results import MidResult, PreResult, Row, StepResult
    from pyaici.client.runtime import Runtime
    from pyaici.client.step import Step
    from pyaici.engines.batching.histories import EngineModel
    from pyaici.engines.engine import (
        Backtracked,
        Engine,
        Event,
        Finished,
        FinishReason,
        Forked,
        GenerationResult,
        Log,
        Origin,
        PromptCached,
        Request,
        Sampling,
        Started,
        Suspended,
        TokensAppended,
        VariablesChanged,
    )
    from pyaici.engines.hf.engine import HfEngine
    from pyaici.engines.hf.logits_processor import AiciLogitsProcessor
    from pyaici.engines.llama.engine import LlamaEngine
    from pyaici.engines.llama.library import load_library
    from pyaici.engines.llama.model import LlamaModel
    from pyaici.engines.vllm.engine import VllmEngine
    from pyaici.opening import EngineOptions, open_engine
    from pyaici.tokens import Vocabulary, load_vocabulary

    #: the version of the installed distribution, which pyproject.toml sets
    __version__: str

_HOMES = {
    "aicirt.contract.abi": ["RowKind", "Verb"],
    "aicirt.contract.errors": ["AiciError"],
    "aicirt.contract.messages": ["StepInput"],
    "aicirt.contract.modules": ["ControllerInfo"],
    "pyaici.client.arguments": ["ALL", "Capabilities", "MASK_ONLY"],
    "pyaici.client.masks": ["apply_masks", "apply_row"],
    "pyaici.client.results": ["MidResult", "PreResult", "Row", "StepResult"],
    "pyaici.client.runtime": ["Runtime"],
    "pyaici.client.step": ["Step"],
    "pyaici.engines.batching.histories": ["EngineModel"],
    "pyaici.engines.engine": [
        *("Backtracked", "Engine", "Event", "FinishReason", "Finished", "Forked", "GenerationResult"),
        *("Log", "Origin", "PromptCached", "Request", "Sampling", "Started", "Suspended"),
        *("TokensAppended", "VariablesChanged"),
    ],
    "pyaici.engines.hf.engine": ["HfEngine"],
    "pyaici.engines.hf.logits_processor": ["AiciLogitsProcessor"],
    "pyaici.engines.llama.engine": ["LlamaEngine"],
    "pyaici.engines.llama.library": ["load_library"],
    "pyaici.engines.llama.model": ["LlamaModel"],
    "pyaici.engines.vllm.engine": ["VllmEngine"],
    "pyaici.opening": ["EngineOptions", "open_engine"],
    "pyaici.tokens": ["Vocabulary", "load_vocabulary"],
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "ALL",
    "MASK_ONLY",
    "AiciError",
    "AiciLogitsProcessor",
    "Backtracked",
    "Capabilities",
    "ControllerInfo",
    "Engine",
    "EngineModel",
    "EngineOptions",
    "Event",
    "FinishReason",
    "Finished",
    "Forked",
    "GenerationResult",
    "HfEngine",
    "LlamaEngine",
    "LlamaModel",
    "Log",
    "MidResult",
    "Origin",
    "PreResult",
    "PromptCached",
    "Request",
    "Row",
    "RowKind",
    "Runtime",
    "Sampling",
    "Started",
    "Step",
    "StepInput",
    "StepResult",
    "Suspended",
    "TokensAppended",
    "VariablesChanged",
    "Verb",
    "VllmEngine",
    "Vocabulary",
    "apply_masks",
    "apply_row",
    "load_library",
    "load_vocabulary",
    "open_engine",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version  # takes longer than all else here

        try:
            return version("pyaici")
        except PackageNotFoundError:
            return "0+source"  # a source tree that is not installed
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
