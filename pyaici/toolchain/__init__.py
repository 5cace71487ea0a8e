"""Builds controllers to WebAssembly, from sources in several languages.

C, C++20 and Zig are compiled by the PyPI package `ziglang`, Rust and AssemblyScript by the local cargo and
asc. Interpreters of scripts are compiled from sources that pip fetches.

``build_controller`` builds one controller, ``build_all`` every folder of ``controllers/``. Both are
incremental and safe to call from several processes. This package needs only the standard library and
`ziglang`, because the build of the wheel uses it in an environment without other packages.
"""

from __future__ import annotations

from .controller import Built, build_all, build_controller, controller_folders, remove_stale
from .interpreters import notices
from .native import build_library
from .sdk import BuildError, MissingSources, MissingToolchain, Sdk, find_sdk
from .zig import Toolchain

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
