"""Controllers on disk: a content-addressed store, limited compilation, tags.

Unlike `aicirt.wasm` this never runs a guest; compiling happens in a child process.
"""

from __future__ import annotations

from aicirt.modules.compile import CompileLimits, compile_in_child, compile_in_child_async
from aicirt.modules.info import ModuleInfo
from aicirt.modules.store import ModuleStore, default_directory
from aicirt.modules.tags import Tag, Tags

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
