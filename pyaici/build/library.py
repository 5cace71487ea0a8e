"""The SDK's C++ sources as an archive."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from .digest import digest
from .objects import Setting, compile_all, compile_rule
from .sdk import Sdk
from .toolchain import Toolchain


def library_digest(sdk: Sdk, tools: Toolchain) -> str:
    """The name of the archive that these sources, headers, flags and this compiler make."""
    return digest(compile_rule(sdk, tools), sdk.root, sdk.cxx_sources())


def build_library(sdk: Sdk, tools: Toolchain) -> Path:
    """The archive: the one that came with the SDK if it fits, else from the cache or compiled into it.

    Only the sources that changed are compiled, or all of them if a header or a flag did.

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
    """Makes `archive` of `objects`, by way of the folder `scratch`: it appears whole or not at all."""
    made = scratch / "made.a"
    tools.run(["ar", "rcsD", made, *objects], f"archiving {archive.name}")
    os.replace(made, archive)
