"""Builds controllers: C, C++20 and Zig sources to Wasm, with the compiler of the PyPI package `ziglang`;
Rust and AssemblyScript with the cargo and the asc of this machine; interpreters of scripts from sources
that pip fetches.

``build_controller`` builds one, ``build_all`` every folder of ``controllers/``. Both are incremental
and safe to call from several processes. This package needs the standard library and `ziglang` only,
because building the wheel uses it in an environment that has nothing else.
"""

from __future__ import annotations

from .controller import Built, build_controller
from .errors import BuildError, MissingSources, MissingToolchain
from .interpreters import notices
from .library import build_library
from .project import build_all, controller_folders, remove_stale
from .sdk import Sdk, find_sdk
from .toolchain import Toolchain

__all__ = [
    "BuildError",
    "Built",
    "MissingSources",
    "MissingToolchain",
    "Sdk",
    "Toolchain",
    "build_all",
    "build_controller",
    "build_library",
    "controller_folders",
    "find_sdk",
    "notices",
    "remove_stale",
]
