"""Builds a C or C++ controller: compiles its objects and links them with what they need of libraries."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Protocol

from . import flags
from .cache import digest
from .link import Libraries, link
from .objects import Jobs, Setting, compile_all, compile_rule
from .sdk import CXX_SUFFIXES, Sdk
from .toolchain import Toolchain


class Base(Protocol):
    """A component besides the SDK on which a controller is built, such as an interpreter."""

    @property
    def rule(self) -> object:
        """The inputs of the module other than files: flags, versions."""

    @property
    def inputs(self) -> list[Path]:
        """Files on which the module depends, besides its sources."""

    @property
    def stack_bytes(self) -> int:
        """The size of the module's stack in bytes."""

    def make(self, scratch: Path) -> tuple[Setting, list[Path]]:
        """Returns the setting that compiles the controller's sources, and the archives to link.

        Files that only this build needs may be in the folder `scratch`.
        """


class NativeBuild:
    """The build of a controller from C and C++ sources, on a `base` if it has one.

    The cache holds a record and a module. The record lists the other files that the sources include; its
    name is the digest of the sources, the SDK, the flags and the compiler. The module's name is the digest
    of that name and of the included files.
    """

    def __init__(self, sdk: Sdk, tools: Toolchain, sources: list[Path], base: Base | None = None) -> None:
        self.sdk, self.tools, self.sources, self.base = sdk, tools, sources, base
        self.folder = sources[0].parent
        self.cxx = any(p.suffix in CXX_SUFFIXES for p in sources)
        library = digest("library", sdk.root, sdk.cxx_sources()) if self.cxx else None
        rule: list[object] = [compile_rule(sdk, tools), flags.LINK, library]
        files = list(sources)
        if base is not None:
            rule.append((base.rule, base.stack_bytes))
            files += base.inputs
        self._key = digest(rule, self.folder, files)
        self._record = tools.artifact(self._key, ".json")

    def find(self) -> Path | None:
        """Returns the module in the cache, or None."""
        if not self._record.exists():
            return None
        included = json.loads(self.tools.used(self._record).read_text())
        module = self._module([self.folder / name for name in included])
        return self.tools.used(module) if module.exists() else None

    def make(self) -> Path:
        """Compiles and links the module into the cache, atomically, unless it is there; returns its path."""
        with self.tools.lock(self._key):
            return self.find() or self._make()

    def _make(self) -> Path:
        self.tools.prune()
        with tempfile.TemporaryDirectory(dir=self.tools.cache) as scratch:
            made = Path(scratch) / "out.wasm"
            setting, archives, stack_bytes = Setting.of(self.sdk), list[Path](), flags.STACK_BYTES
            if self.base is not None:
                setting, archives = self.base.make(Path(scratch) / "base")
                stack_bytes = self.base.stack_bytes
            jobs = Jobs(self.tools)
            objects, included = compile_all(self.tools, self.sources, Path(scratch), setting, jobs)
            libraries = Libraries(self.sdk, self.tools, jobs)
            link(
                libraries,
                self.tools,
                objects,
                made,
                self.folder.name,
                archives=archives,
                cxx=self.cxx,
                stack_bytes=stack_bytes,
            )
            names = [os.path.relpath(p, self.folder) for p in included]
            module = self._module(included)
            os.replace(made, module)
            record = Path(scratch) / "record.json"
            record.write_text(json.dumps(names))
            os.replace(record, self._record)
        return module

    def _module(self, included: list[Path]) -> Path:
        return self.tools.artifact(digest([self._key], self.folder, included), ".wasm")
