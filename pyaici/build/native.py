"""Builds C and C++ controllers: objects, the SDK's library, the link."""

from __future__ import annotations

import json
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import flags
from .digest import digest
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
        self._rule = [
            tools.version,
            flags.C,
            flags.CXX,
            flags.LINK,
            digest("headers", sdk.root, sdk.headers()),
        ]
        library = sdk.cxx_sources() if self.cxx else []
        self._key = digest([*self._rule, digest("library", sdk.root, library)], self.folder, sources)
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
            objects, included = self._compile_all(self.sources, Path(scratch))
            library = [self._library()] if self.cxx and self.sdk.cxx_sources() else []
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

    def _library(self) -> Path:
        """The SDK's C++ sources as an archive; compiles what changed, all if a header or a flag did."""
        name = digest(self._rule, self.sdk.root, self.sdk.cxx_sources())
        archive = self.tools.artifact(name, ".a")
        with self.tools.lock(name):
            if not archive.exists():
                self._make_library(archive)
        return self.tools.used(archive)

    def _make_library(self, archive: Path) -> None:
        sources = self.sdk.cxx_sources()
        objects = {s: self.tools.artifact(digest(self._rule, self.sdk.root, [s]), ".o") for s in sources}
        stale = [s for s, o in objects.items() if not o.exists()]
        if stale:
            self.tools.progress(f"compiling {len(stale)} of {len(sources)} SDK sources")
        with tempfile.TemporaryDirectory(dir=self.tools.cache) as scratch:
            for source, compiled in zip(stale, self._compile_all(stale, Path(scratch))[0], strict=True):
                os.replace(compiled, objects[source])
            made = Path(scratch) / "sdk.a"
            self.tools.run(["ar", "rcsD", made, *map(self.tools.used, objects.values())], "archiving the SDK")
            os.replace(made, archive)

    def _compile_all(self, sources: list[Path], scratch: Path) -> tuple[list[Path], list[Path]]:
        """The objects, and the files outside the SDK and the compiler that the sources include."""
        objects = [scratch / f"{number}.o" for number in range(len(sources))]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            included = set[Path]().union(*pool.map(self._compile, sources, objects))
        return objects, sorted(included - set(sources))

    def _compile(self, source: Path, made: Path) -> set[Path]:
        driver: list[str | Path] = ["c++", *flags.CXX] if source.suffix in CXX_SUFFIXES else ["cc", *flags.C]
        # relative names in assertions, so that two checkouts build the same bytes
        names = [f"-ffile-prefix-map={self.sdk.root}=aici", f"-ffile-prefix-map={source.parent}=."]
        rule = made.with_suffix(".d")
        arguments = [*driver, "-I", self.sdk.include, *names, "-MD", "-MF", rule, "-c", source, "-o", made]
        self.tools.run(arguments, f"compiling {source}")
        ours = (self.sdk.root.resolve(), self.tools.zig.parent.resolve())
        return {p for p in _dependencies(rule) if not any(p.is_relative_to(o) for o in ours)}


def _dependencies(rule: Path) -> set[Path]:
    """The files that a make rule, as the compiler writes it, depends on."""
    text = rule.read_text().partition(": ")[2].replace("\\\n", " ").replace("\\ ", "\0")
    return {Path(word.replace("\0", " ")).resolve() for word in text.split()}
