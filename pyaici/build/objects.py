"""Compiles C and C++ sources to objects."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import flags
from .digest import digest
from .sdk import CXX_SUFFIXES, Sdk
from .toolchain import Toolchain


def compile_rule(sdk: Sdk, tools: Toolchain) -> str:
    """What an object depends on beside its source and the headers that are not the SDK's."""
    return digest([tools.version, flags.C, flags.CXX], sdk.root, sdk.headers())


def compile_all(
    sdk: Sdk, tools: Toolchain, sources: list[Path], scratch: Path
) -> tuple[list[Path], list[Path]]:
    """The objects, in `scratch`, and the files outside the SDK and the compiler that the sources include.

    Raises:
        BuildError: a source does not compile.
    """
    objects = [scratch / f"{number}.o" for number in range(len(sources))]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(_compile, sdk, tools, s, o) for s, o in zip(sources, objects, strict=True)]
        try:
            included = set[Path]().union(*(job.result() for job in jobs))
        finally:
            pool.shutdown(cancel_futures=True)  # after an error, do not compile the rest
    return objects, sorted(included - set(sources))


def _compile(sdk: Sdk, tools: Toolchain, source: Path, made: Path) -> set[Path]:
    driver: list[str | Path] = ["c++", *flags.CXX] if source.suffix in CXX_SUFFIXES else ["cc", *flags.C]
    # relative names in assertions, so that two checkouts build the same bytes
    names = [f"-ffile-prefix-map={sdk.root}=aici", f"-ffile-prefix-map={source.parent}=."]
    rule = made.with_suffix(".d")
    tools.run(
        [*driver, "-I", sdk.include, *names, "-MD", "-MF", rule, "-c", source, "-o", made],
        f"compiling {source}",
    )
    ours = (sdk.root.resolve(), tools.zig.parent.resolve())
    return {path for path in _dependencies(rule) if not any(path.is_relative_to(o) for o in ours)}


def _dependencies(rule: Path) -> set[Path]:
    """The files that a make rule, as the compiler writes it, depends on."""
    text = rule.read_text().partition(": ")[2].replace("\\\n", " ").replace("\\ ", "\0")
    return {Path(word.replace("\0", " ")).resolve() for word in text.split()}
