"""Controllers on disk: a content-addressed store, compilation with limits, tags.

Unlike `aicirt.wasm`, this package never runs a guest; compilation happens in a child process.
"""

from __future__ import annotations

from aicirt.contract.modules import ControllerInfo
from aicirt.modules.compile import CompileLimits, compile_in_child, compile_in_child_async
from aicirt.modules.ownership import Tag
from aicirt.modules.store import ModuleStore, default_directory

__all__ = [
    "CompileLimits",
    "ControllerInfo",
    "ModuleStore",
    "Tag",
    "compile_in_child",
    "compile_in_child_async",
    "default_directory",
]
