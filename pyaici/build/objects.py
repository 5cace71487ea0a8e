"""Compiles C and C++ sources to objects."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

from . import flags
from .digest import digest
from .sdk import CXX_SUFFIXES, Sdk
from .toolchain import Toolchain

#: sources between two lines of progress
_REPORT_EVERY = 20
#: standard headers that sources of the SDK include
_STANDARD = (
    *("algorithm", "bit", "charconv", "concepts", "cstddef", "cstdint", "cstring", "functional"),
    *("initializer_list", "limits", "map", "memory", "optional", "set", "span", "string", "string_view"),
    *("type_traits", "unordered_map", "unordered_set", "utility", "variant", "vector"),
)


@dataclass(frozen=True)
class Setting:
    """Settings for compiling sources, besides the flags of their language."""

    #: folders for -I
    include: tuple[Path, ...]
    #: folders whose files the caller tracks itself, and the names for them in assertions
    known: Mapping[Path, str]
    #: folders of third-party headers, whose warnings are not shown
    foreign: tuple[Path, ...] = ()
    flags: tuple[str, ...] = ()
    #: the sources that call setjmp
    setjmp: frozenset[Path] = field(default_factory=frozenset)

    @classmethod
    def of(cls, sdk: Sdk) -> Setting:
        """Returns the settings for controllers and for the SDK itself."""
        return cls((sdk.include,), {sdk.root: "aici"})


def compile_rule(sdk: Sdk, tools: Toolchain) -> str:
    """Returns the digest of an object's inputs, besides its source and headers outside the SDK."""
    return digest([tools.version, flags.C, flags.CXX], sdk.root, sdk.headers())


def compile_all(
    tools: Toolchain, sources: list[Path], scratch: Path, setting: Setting
) -> tuple[list[Path], list[Path]]:
    """Compiles sources in parallel; returns their objects in `scratch`, and the files that they include.

    The list of files leaves out those of the compiler and of `setting.known`.

    Raises:
        BuildError: a source does not compile.
    """
    objects = [scratch / f"{number}.o" for number in range(len(sources))]
    shared = _precompile(tools, sources, scratch, setting)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [
            pool.submit(_compile, tools, source, made, setting, shared)
            for source, made in zip(sources, objects, strict=True)
        ]
        try:
            included = set[Path]()
            for number, job in enumerate(as_completed(jobs), 1):
                included |= job.result()
                if number % _REPORT_EVERY == 0 and number < len(jobs):
                    tools.progress(f"  {number} of {len(jobs)} sources compiled")
        finally:
            pool.shutdown(cancel_futures=True)  # after an error, do not compile the rest
    return objects, sorted(included - set(sources))


def _precompile(tools: Toolchain, sources: list[Path], scratch: Path, setting: Setting) -> Path | None:
    """Precompiles the standard headers that most sources include, which halves the time of each source.

    Objects are the same with and without it. Returns None if there are too few sources to be worth it.
    """
    if sum(source.suffix in CXX_SUFFIXES and source not in setting.setjmp for source in sources) < 4:
        return None
    header, made = scratch / "standard.hpp", scratch / "standard.pch"
    header.write_text("".join(f"#include <{name}>\n" for name in _STANDARD))
    tools.run(
        ["c++", *flags.CXX, *setting.flags, "-x", "c++-header", header, "-o", made],
        "precompiling the standard headers",
    )
    return made


def _compile(
    tools: Toolchain, source: Path, made: Path, setting: Setting, precompiled: Path | None
) -> set[Path]:
    is_cxx = source.suffix in CXX_SUFFIXES
    driver: list[str | Path] = ["c++", *flags.CXX] if is_cxx else ["cc", *flags.C]
    driver += setting.flags
    if source in setting.setjmp:
        driver += flags.SETJMP
    elif is_cxx and precompiled is not None:
        driver += ["-include-pch", precompiled]
    for folder in setting.include:
        driver += ["-I", folder]
    for folder in setting.foreign:
        driver += ["-isystem", folder]
    # relative names in assertions, so that two checkouts build the same bytes
    for folder, name in {**setting.known, source.parent: "."}.items():
        driver.append(f"-ffile-prefix-map={folder}={name}")
    rule = made.with_suffix(".d")
    tools.run([*driver, "-MD", "-MF", rule, "-c", source, "-o", made], f"compiling {source}")
    known = [folder.resolve() for folder in (*setting.known, tools.zig.parent, made.parent)]
    return {path for path in _dependencies(rule) if not any(path.is_relative_to(folder) for folder in known)}


def _dependencies(rule: Path) -> set[Path]:
    """Returns the dependencies in a make rule that the compiler has written."""
    text = rule.read_text().partition(": ")[2].replace("\\\n", " ").replace("\\ ", "\0")
    return {Path(word.replace("\0", " ")).resolve() for word in text.split()}
