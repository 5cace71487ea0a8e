"""Builds controllers to WebAssembly, from sources in several languages.

C, C++20 and Zig are compiled by the PyPI package `ziglang`, Rust and AssemblyScript by the local cargo and
asc. Interpreters of scripts are compiled from sources that pip fetches.

``build_controller`` builds one controller, ``build_all`` every folder of ``controllers/``. Both are
incremental and safe to call from several processes. This package needs only the standard library and
`ziglang`, because the build of the wheel uses it in an environment without other packages.
"""

from __future__ import annotations

from .controller import Built, build_controller
from .errors import BuildError, MissingSources, MissingToolchain
from .interpreters import notices
from .link import build_library
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
