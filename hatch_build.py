"""Build hooks of the package: controllers compiled into the wheel, and the description for PyPI."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

#: what a build of a controller reads in controllers/sdk
SDK_PARTS = ("include", "src", "zig", "rust/src", "rust/Cargo.toml", "assemblyscript")


class ControllerBuildHook(BuildHookInterface[Any]):
    """Puts ``pyaici/_wasm/NAME.wasm`` for every folder ``controllers/NAME`` into the wheel, the SDK, the
    grammars of ``controllers/NAME/grammars``, and the licences of the interpreters that are compiled in.

    An editable install builds nothing. It runs from the source tree, where `python -m pyaici.toolchain`
    builds: scripts/setup.sh calls it, for as many controllers as are needed.
    """

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it collects the files; `version` is "standard" or "editable"."""
        if sys.platform != "linux":
            raise RuntimeError(
                f"aici runs on Linux only, not on {sys.platform}: use Linux, a container or WSL 2"
            )
        if version == "editable":
            return
        root = Path(self.root)
        out = root / "pyaici" / "_wasm"
        driver = _driver(root)
        built = driver.build_all(out, root=root)
        driver.remove_stale(out, built)
        sdk = root / "controllers" / "sdk"
        controllers = [module.path for module in built if module.path.parent == out]
        # compiled, so that a user's first C++ controller need not wait for the SDK's sources
        tools = driver.Toolchain()
        objects = driver.build_library(driver.Sdk(sdk), tools)
        notices = driver.notices([root / "controllers" / module.name for module in built], tools)
        build_data["force_include"].update(
            {str(path): f"pyaici/_wasm/{path.name}" for path in controllers}
            | {str(sdk / part): f"pyaici/_sdk/{part}" for part in SDK_PARTS}
            | {str(made): f"pyaici/_sdk/lib/{made.name}" for made in objects}
            | {str(notice): f"pyaici/_licenses/{name}" for name, notice in notices.items()}
            | {
                str(grammar): f"pyaici/_grammars/{grammar.name}"
                for grammar in sorted((root / "controllers").glob("*/grammars/*"))
            }
        )


class DescriptionHook(MetadataHookInterface):
    """Makes the description from README.md. PyPI cannot follow relative links, so they become text."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Called by hatchling with the table `project` of pyproject.toml."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        text = re.sub(r"!\[[^]]+\]\((?!https?://)[^)]+\)\n*", "", text)
        text = re.sub(r"\[([^]]+)\]\((?!https?://)[^)]+\)", r"\1", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def _driver(root: Path) -> ModuleType:
    """`pyaici.toolchain` by its path: importing `pyaici` needs packages that a build does not have."""
    package = root / "pyaici" / "toolchain"
    spec = importlib.util.spec_from_file_location(
        "aici_toolchain", package / "__init__.py", submodule_search_locations=[str(package)]
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["aici_toolchain"] = module
    spec.loader.exec_module(module)
    return module
