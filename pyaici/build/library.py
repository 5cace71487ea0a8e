"""Builds the SDK's C++ sources into an archive."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from .digest import digest
from .objects import Setting, compile_all, compile_rule
from .sdk import Sdk
from .toolchain import Toolchain


def library_digest(sdk: Sdk, tools: Toolchain) -> str:
    """Returns the archive's name: the digest of its sources, headers, flags and compiler."""
    return digest(compile_rule(sdk, tools), sdk.root, sdk.cxx_sources())


def build_library(sdk: Sdk, tools: Toolchain) -> Path:
    """Returns the archive: the one shipped with the SDK if its digest matches, else one in the cache.

    If the cache lacks it, compiles the changed sources; after a change of a header or flag, all sources.

    Raises:
        BuildError: a source does not compile.
    """
    name = library_digest(sdk, tools)
    shipped = sdk.libraries / f"{name}.a"
    if shipped.is_file():
        return shipped
    archive = tools.artifact(name, ".a")
    with tools.lock(name):
        if not archive.exists():
            _make(sdk, tools, archive)
    return tools.used(archive)


def _make(sdk: Sdk, tools: Toolchain, archive: Path) -> None:
    sources = sdk.cxx_sources()
    rule = compile_rule(sdk, tools)
    objects = {source: tools.artifact(digest(rule, sdk.root, [source]), ".o") for source in sources}
    stale = [source for source, made in objects.items() if not made.exists()]
    if stale:
        tools.progress(f"compiling {len(stale)} of {len(sources)} SDK sources")
    with tempfile.TemporaryDirectory(dir=tools.cache) as scratch:
        compiled, _ = compile_all(tools, stale, Path(scratch), Setting.of(sdk))
        for source, made in zip(stale, compiled, strict=True):
            os.replace(made, objects[source])
        write_archive(tools, list(map(tools.used, objects.values())), archive, Path(scratch))


def write_archive(tools: Toolchain, objects: list[Path], archive: Path, scratch: Path) -> None:
    """Writes `archive` from `objects` atomically, by way of the folder `scratch`."""
    made = scratch / "made.a"
    tools.run(["ar", "rcsD", made, *objects], f"archiving {archive.name}")
    os.replace(made, archive)
