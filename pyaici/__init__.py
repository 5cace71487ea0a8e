"""Steers language models token by token with controllers that run outside the engine, in aicirt.

The public names are those of `__all__` here, and those that docs/python.md describes in other modules. Names
are imported at their first use, so that `import pyaici` is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import aicirt  # noqa: F401 - raises ImportError where the platform is not Linux

if TYPE_CHECKING:
    from aicirt.contract.abi import RowKind, Verb
    from aicirt.contract.errors import (
        AiciError,
        ArgumentError,
        CapabilityError,
        ClosedError,
        CompileLimitError,
        ControllerError,
        ControllerFailed,
        DeadlockError,
        EmptyMaskError,
        ForeignDaemonError,
        ForkLimitError,
        LivelockError,
        MemoryLimitError,
        ModuleError,
        NotOwnerError,
        OwnerLimitError,
        ProtocolError,
        ResultError,
        RuntimeFailure,
        RuntimeTimeoutError,
        SpaceError,
        SupervisorDiedError,
        TemplateGoneError,
        TimeLimitError,
        TrapError,
        UnknownModuleError,
        UnknownSequenceError,
        VariableLimitError,
        VocabularyError,
        WorkerDiedError,
    )
    from aicirt.contract.messages import StepInput
    from aicirt.contract.modules import ModuleInfo
    from pyaici.client.capabilities import ALL, MASK_ONLY, Capabilities
    from pyaici.client.masks import apply_masks, apply_row
    from pyaici.client.results import MidResult, PreResult, Row, StepResult
    from pyaici.client.runtime import Runtime
    from pyaici.client.step import Step
    from pyaici.tokens import Vocabulary, load_vocabulary

    #: the version of the installed distribution, which pyproject.toml sets
    __version__: str

#: where names are that are not errors
_HOMES = {
    "aicirt.contract.abi": ["RowKind", "Verb"],
    "aicirt.contract.messages": ["StepInput"],
    "aicirt.contract.modules": ["ModuleInfo"],
    "pyaici.client.capabilities": ["ALL", "MASK_ONLY", "Capabilities"],
    "pyaici.client.masks": ["apply_masks", "apply_row"],
    "pyaici.client.runtime": ["Runtime"],
    "pyaici.client.results": ["MidResult", "PreResult", "Row", "StepResult"],
    "pyaici.client.step": ["Step"],
    "pyaici.tokens": ["Vocabulary", "load_vocabulary"],
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "ALL",
    "MASK_ONLY",
    "AiciError",
    "ArgumentError",
    "Capabilities",
    "CapabilityError",
    "ClosedError",
    "CompileLimitError",
    "ControllerError",
    "ControllerFailed",
    "DeadlockError",
    "EmptyMaskError",
    "ForeignDaemonError",
    "ForkLimitError",
    "LivelockError",
    "MemoryLimitError",
    "MidResult",
    "ModuleError",
    "ModuleInfo",
    "NotOwnerError",
    "OwnerLimitError",
    "PreResult",
    "ProtocolError",
    "ResultError",
    "Row",
    "RowKind",
    "Runtime",
    "RuntimeFailure",
    "RuntimeTimeoutError",
    "SpaceError",
    "Step",
    "StepInput",
    "StepResult",
    "SupervisorDiedError",
    "TemplateGoneError",
    "TimeLimitError",
    "TrapError",
    "UnknownModuleError",
    "UnknownSequenceError",
    "VariableLimitError",
    "Verb",
    "Vocabulary",
    "VocabularyError",
    "WorkerDiedError",
    "apply_masks",
    "apply_row",
    "load_vocabulary",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version  # takes longer than all else here

        try:
            return version("pyaici")
        except PackageNotFoundError:
            return "0+source"  # a source tree that is not installed
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF.get(name, "aicirt.contract.errors")), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
