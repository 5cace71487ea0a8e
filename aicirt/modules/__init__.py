"""Controllers on disk: a content-addressed store, limited compilation, tags.

Unlike `aicirt.wasm` this never runs a guest; compiling happens in a child process.
"""

from __future__ import annotations

from aicirt.contract.modules import ModuleInfo
from aicirt.modules.compile import CompileLimits, compile_in_child, compile_in_child_async
from aicirt.modules.ownership import Tag, Tags
from aicirt.modules.store import ModuleStore, default_directory

__all__ = [
    "CompileLimits",
    "ModuleInfo",
    "ModuleStore",
    "Tag",
    "Tags",
    "compile_in_child",
    "compile_in_child_async",
    "default_directory",
]
