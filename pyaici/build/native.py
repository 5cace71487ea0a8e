"""Builds a C or C++ controller: its objects, the SDK's library, the link."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from . import flags
from .digest import digest
from .library import build_library, library_digest
from .objects import compile_all, compile_rule
from .sdk import CXX_SUFFIXES, Sdk
from .toolchain import Toolchain


class NativeBuild:
    """One controller of C and C++ sources.

    The digest of the sources, the SDK, the flags and the compiler names a record of the other files that the
    sources include; the digest of that record with their contents names the module. Both live in the cache.
    """

    def __init__(self, sdk: Sdk, tools: Toolchain, sources: list[Path]) -> None:
        self.sdk, self.tools, self.sources = sdk, tools, sources
        self.folder = sources[0].parent
        self.cxx = any(p.suffix in CXX_SUFFIXES for p in sources)
        self._linked = self.cxx and bool(sdk.cxx_sources())
        rule = [compile_rule(sdk, tools), flags.LINK, library_digest(sdk, tools) if self._linked else None]
        self._key = digest(rule, self.folder, sources)
        self._record = tools.artifact(self._key, ".json")

    def find(self) -> Path | None:
        """The module in the cache, if it is there."""
        if not self._record.exists():
            return None
        included = json.loads(self.tools.used(self._record).read_text())
        module = self._module([self.folder / name for name in included])
        return self.tools.used(module) if module.exists() else None

    def make(self) -> Path:
        """Compiles and links into the cache; the module appears whole or not at all."""
        with self.tools.lock(self._key):
            return self.find() or self._make()

    def _make(self) -> Path:
        self.tools.prune()
        command = self.tools.link_command(cxx=self.cxx)
        with tempfile.TemporaryDirectory(dir=self.tools.cache) as scratch:
            made = Path(scratch) / "out.wasm"
            objects, included = compile_all(self.sdk, self.tools, self.sources, Path(scratch))
            library = [build_library(self.sdk, self.tools)] if self._linked else []
            self.tools.run([*command, *objects, *library, "-o", made], f"linking {self.folder.name}")
            names = [os.path.relpath(p, self.folder) for p in included]
            module = self._module(included)
            os.replace(made, module)
            record = Path(scratch) / "record.json"
            record.write_text(json.dumps(names))
            os.replace(record, self._record)
        return module

    def _module(self, included: list[Path]) -> Path:
        return self.tools.artifact(digest([self._key], self.folder, included), ".wasm")
