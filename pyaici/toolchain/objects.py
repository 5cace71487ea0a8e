"""Compiles C and C++ sources to objects, in parallel."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from . import flags
from .sdk import CXX_SUFFIXES, BuildError, Sdk
from .zig import Toolchain, digest

#: seconds between two lines of progress
_REPORT_SECONDS = 8.0
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


class Jobs:
    """Runs compilers in parallel. Reports every few seconds how many of the sources so far are compiled."""

    def __init__(self, tools: Toolchain) -> None:
        self._tools, self._done, self._all, self._reported = tools, 0, 0, time.monotonic()

    def run(
        self, commands: Sequence[tuple[Sequence[str | Path], str]], *, may_fail: bool = False
    ) -> list[bool]:
        """Runs ``zig ARGUMENTS`` for each pair of arguments and a description; returns which succeeded.

        Raises:
            BuildError: one failed, unless `may_fail`; those that have not begun are left out.
        """
        self._all += len(commands)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            jobs = [pool.submit(self._tools.run, *command) for command in commands]
            left = set(jobs)
            try:
                while left:
                    ended, left = wait(left, _REPORT_SECONDS, FIRST_COMPLETED)
                    for job in ended:
                        if not (may_fail and isinstance(job.exception(), BuildError)):
                            job.result()
                    self._done += len(ended)
                    self._report(unfinished=bool(left))
            finally:
                pool.shutdown(cancel_futures=True)
        return [job.exception() is None for job in jobs]

    def _report(self, *, unfinished: bool) -> None:
        now = time.monotonic()
        if unfinished and now - self._reported >= _REPORT_SECONDS:
            self._tools.progress(f"  compiled {self._done} of {self._all} sources so far")
            self._reported = now


def compile_all(
    tools: Toolchain, sources: list[Path], scratch: Path, setting: Setting, jobs: Jobs | None = None
) -> tuple[list[Path], list[Path]]:
    """Compiles sources in parallel; returns their objects in `scratch`, and the files that they include.

    The list of files leaves out those of the compiler and of `setting.known`.

    Raises:
        BuildError: a source does not compile.
    """
    objects = [scratch / f"{number}.o" for number in range(len(sources))]
    headers = _precompiled(tools, sources, setting)
    commands = [
        (_command(source, made, setting, headers.get(source)), f"compiling {source}")
        for source, made in zip(sources, objects, strict=True)
    ]
    (jobs or Jobs(tools)).run(commands)
    folders = (*setting.known, tools.zig.parent, scratch, *tools.folders)
    known = [folder.resolve() for folder in folders]
    included = {path for made in objects for path in _dependencies(made.with_suffix(".d"))} - set(sources)
    return objects, sorted(
        path for path in included if not any(path.is_relative_to(folder) for folder in known)
    )


def _precompiled(tools: Toolchain, sources: list[Path], setting: Setting) -> dict[Path, Path]:
    """Returns the precompiled headers of sources. Objects are the same with and without them.

    The SDK's headers take 70 percent of the time of a small controller, and the standard headers half the
    time of a source. The cache keeps both; the standard ones are not made for fewer than four sources.
    """
    others = [source for source in sources if source.suffix in CXX_SUFFIXES and source not in setting.setjmp]
    found = dict[Path, Path]()
    if setting.sdk is not None and (first := [source for source in others if _starts_with_sdk(source)]):
        header = setting.sdk.include / "aici" / "sdk.hpp"
        rule: list[object] = [compile_rule(setting.sdk, tools), str(setting.sdk.root.resolve())]
        made = _precompile(tools, header, rule, _driver(setting), "build")
        found |= dict.fromkeys(first, made) if made is not None else {}
        others = [source for source in others if source not in found]
    if others:
        text = "".join(f"#include <{name}>\n" for name in _STANDARD)
        header = tools.artifact(digest(["standard headers", text], Path(), []), ".hpp", "system")
        if not header.exists():
            unfinished = header.with_suffix(f".{os.getpid()}")
            unfinished.write_text(text)
            os.replace(unfinished, header)
        rule = [tools.version, flags.CXX, str(tools.used(header))]
        driver, make = ["c++", *flags.CXX], len(others) >= 4
        made = _precompile(tools, header, rule, driver, "system", make=make)
        found |= dict.fromkeys(others, made) if made is not None else {}
    return found


def _starts_with_sdk(source: Path) -> bool:
    """Returns whether only standard headers and headers of the SDK precede ``aici/sdk.hpp`` in a source.

    A compiler then sees the same declarations with and without the precompiled header. In another source,
    it could hide that an include is missing, and would not see macros that the source defines before it.
    """
    return _SDK_FIRST.match(source.read_text(errors="replace")) is not None


def _precompile(
    tools: Toolchain,
    header: Path,
    rule: Sequence[object],
    driver: Sequence[str | Path],
    folder: str,
    *,
    make: bool = True,
) -> Path | None:
    """Returns the precompiled `header` in the cache, or None. Makes it if the cache lacks it and `make`."""
    name = digest([*rule, str(tools.zig.resolve())], Path(), [])  # the file contains these paths
    made = tools.artifact(name, ".pch", folder)
    if make and not made.exists():
        with tools.lock(name):
            if not made.exists():
                with tempfile.TemporaryDirectory(dir=tools.cache) as scratch:
                    new = Path(scratch) / "header.pch"
                    tools.run([*driver, *_HEADER, header, "-o", new], f"precompiling {header.name}")
                    os.replace(new, made)
    return tools.used(made) if made.exists() else None


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


def _command(source: Path, made: Path, setting: Setting, precompiled: Path | None) -> list[str | Path]:
    driver = _driver(setting, cxx=source.suffix in CXX_SUFFIXES)
    driver.append(f"-ffile-prefix-map={source.parent}=.")
    if source in setting.setjmp:
        driver += flags.SETJMP
    elif precompiled is not None:
        driver += ["-include-pch", precompiled]
    return [*driver, "-MD", "-MF", made.with_suffix(".d"), "-c", source, "-o", made]


def _dependencies(rule: Path) -> set[Path]:
    """Returns the dependencies in a make rule that the compiler has written."""
    text = rule.read_text().partition(": ")[2].replace("\\\n", " ").replace("\\ ", "\0")
    return {Path(word.replace("\0", " ")).resolve() for word in text.split()}


def write_archive(tools: Toolchain, objects: list[Path], archive: Path, scratch: Path) -> None:
    """Writes `archive` from `objects` atomically, by way of the folder `scratch`."""
    made = scratch / "made.a"
    tools.run(["ar", "rcsD", made, *objects], f"archiving {archive.name}")
    os.replace(made, archive)
