"""Compiles C and C++ sources to objects."""

from __future__ import annotations

import os
import re
import tempfile
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
#: no times of files: the file's name has the digest of their contents, and a checkout changes times
_HEADER = ("-Xclang", "-fno-pch-timestamp", "-x", "c++-header")
_INCLUDE = r"[ \t]*#[ \t]*include[ \t]*"
_SDK_FIRST = re.compile(rf'(?:[ \t]*(?:[/*].*)?\n|{_INCLUDE}(?:<|"aici/).*\n)*{_INCLUDE}"aici/sdk\.hpp"')


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
    #: the SDK, if the sources are compiled with its flags and folders alone
    sdk: Sdk | None = None

    @classmethod
    def of(cls, sdk: Sdk) -> Setting:
        """Returns the settings for controllers and for the SDK itself."""
        return cls((sdk.include,), {sdk.root: "aici"}, sdk=sdk)


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
    headers = _precompile(tools, sources, scratch, setting)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [
            pool.submit(_compile, tools, source, made, setting, headers.get(source))
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


def _precompile(tools: Toolchain, sources: list[Path], scratch: Path, setting: Setting) -> dict[Path, Path]:
    """Returns the precompiled headers of sources. Objects are the same with and without them.

    The SDK's headers take 70 percent of the time of a small controller, so the cache keeps them precompiled.
    The standard headers take half the time of a source; they are precompiled here for four sources or more.
    """
    others = [source for source in sources if source.suffix in CXX_SUFFIXES and source not in setting.setjmp]
    found = dict[Path, Path]()
    if setting.sdk is not None and (first := [source for source in others if _starts_with_sdk(source)]):
        found = dict.fromkeys(first, _precompiled_sdk(tools, setting.sdk, setting))
        others = [source for source in others if source not in found]
    if len(others) >= 4:
        header, standard = scratch / "standard.hpp", scratch / "standard.pch"
        header.write_text("".join(f"#include <{name}>\n" for name in _STANDARD))
        tools.run([*_driver(setting), *_HEADER, header, "-o", standard], "precompiling the standard headers")
        found |= dict.fromkeys(others, standard)
    return found


def _starts_with_sdk(source: Path) -> bool:
    """Returns whether only standard headers and headers of the SDK precede ``aici/sdk.hpp`` in a source.

    A compiler then sees the same declarations with and without the precompiled header. In another source,
    it could hide that an include is missing, and would not see macros that the source defines before it.
    """
    return _SDK_FIRST.match(source.read_text(errors="replace")) is not None


def _precompiled_sdk(tools: Toolchain, sdk: Sdk, setting: Setting) -> Path:
    """Returns the precompiled ``aici/sdk.hpp`` in the cache; makes it if the cache lacks it."""
    paths = [str(path.resolve()) for path in (sdk.root, tools.zig)]  # the file contains them
    name = digest([compile_rule(sdk, tools), paths], sdk.root, [])
    made = tools.artifact(name, ".pch")
    with tools.lock(name):
        if not made.exists():
            with tempfile.TemporaryDirectory(dir=tools.cache) as scratch:
                new = Path(scratch) / "sdk.pch"
                header = sdk.include / "aici" / "sdk.hpp"
                tools.run([*_driver(setting), *_HEADER, header, "-o", new], "precompiling the SDK's headers")
                os.replace(new, made)
    return tools.used(made)


def _driver(setting: Setting, *, cxx: bool = True) -> list[str | Path]:
    """Returns the start of a command: the compiler, its flags and the folders of headers."""
    driver: list[str | Path] = ["c++", *flags.CXX] if cxx else ["cc", *flags.C]
    driver += setting.flags
    for folder in setting.include:
        driver += ["-I", folder]
    for folder in setting.foreign:
        driver += ["-isystem", folder]
    # relative names in assertions, so that two checkouts build the same bytes
    return driver + [f"-ffile-prefix-map={folder}={name}" for folder, name in setting.known.items()]


def _compile(
    tools: Toolchain, source: Path, made: Path, setting: Setting, precompiled: Path | None
) -> set[Path]:
    driver = _driver(setting, cxx=source.suffix in CXX_SUFFIXES)
    driver.append(f"-ffile-prefix-map={source.parent}=.")
    if source in setting.setjmp:
        driver += flags.SETJMP
    elif precompiled is not None:
        driver += ["-include-pch", precompiled]
    rule = made.with_suffix(".d")
    tools.run([*driver, "-MD", "-MF", rule, "-c", source, "-o", made], f"compiling {source}")
    folders = (*setting.known, tools.zig.parent, made.parent, tools.cache / "build")
    known = [folder.resolve() for folder in folders]
    return {path for path in _dependencies(rule) if not any(path.is_relative_to(folder) for folder in known)}


def _dependencies(rule: Path) -> set[Path]:
    """Returns the dependencies in a make rule that the compiler has written."""
    text = rule.read_text().partition(": ")[2].replace("\\\n", " ").replace("\\ ", "\0")
    return {Path(word.replace("\0", " ")).resolve() for word in text.split()}
