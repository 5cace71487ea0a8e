"""Builds a C or C++ controller: compiles it, and links it with the parts of libraries that it needs.

The linker finds out what is needed. It drops functions and data that nothing uses, and then reports those
that are used and undefined. The build compiles the sources that define them, and links again, until nothing
is missing. A source that only dropped functions refer to is never compiled.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from . import flags
from .objects import Jobs, Setting, compile_all, compile_rule
from .sdk import CXX_SUFFIXES, Sdk
from .system import System, Texts, Unit, defined_symbols, is_cxx, is_standard
from .zig import Toolchain, digest


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


#: the library of the controller SDK
_SDK = "sdk"
#: the objects of libc precede those of the controller, and the rest follows: the linker takes a name from the
#: first object that has it. This order also makes the smallest modules; alignment depends on the order
_AFTER = ("libc++", "libc++abi", "zigc", "compiler_rt")
_MISSING = re.compile(r"undefined symbol: (\S+)")


class Libraries:
    """The SDK's library and those of C and C++, compiled as far as links have needed them."""

    def __init__(self, sdk: Sdk, tools: Toolchain, jobs: Jobs | None = None) -> None:
        self._sdk, self._tools, self._jobs = sdk, tools, jobs or Jobs(tools)
        self._texts = Texts()
        self.system = System(tools.zig.parent / "lib", self._texts)
        self.sdk_units = [Unit(_SDK, source, ()) for source in sdk.cxx_sources()]
        self._rule = compile_rule(sdk, tools)
        self._objects = dict[Unit, Path | None]()
        self._defined = dict[Unit, frozenset[str]]()

    def compile(self, units: Iterable[Unit]) -> list[Path | None]:
        """Returns the objects of units: shipped with the SDK, in the cache, or else compiled now.

        Returns None for a doubtful one that does not compile.

        Raises:
            BuildError: another unit does not compile.
        """
        units = list(dict.fromkeys(units))
        places = {unit: self._place(unit) for unit in units if unit not in self._objects}
        if not all(place.exists() for place in places.values()):
            with self._tools.lock("objects"):  # two builds at a time do not compile the same source
                self._make([unit for unit, place in places.items() if not place.exists()], places)
        for unit, place in places.items():
            self._objects[unit] = place if place.exists() else None
            if place.exists() and place.parent in self._tools.folders:
                self._tools.used(place)
        return [self._objects[unit] for unit in units]

    @property
    def units(self) -> list[Unit]:
        """The units that `compile` has been asked for: as many compilers as an empty cache would start."""
        return list(self._objects)

    def _make(self, stale: list[Unit], places: dict[Unit, Path]) -> None:
        with tempfile.TemporaryDirectory(dir=self._tools.cache) as folder:
            scratch = Path(folder)
            own = [unit for unit in stale if unit.library == _SDK]
            sources = [unit.source for unit in own]
            if own:
                made, _ = compile_all(self._tools, sources, scratch, Setting.of(self._sdk), self._jobs)
                for unit, path in zip(own, made, strict=True):
                    os.replace(path, places[unit])
            for doubtful in (False, True):
                system = [unit for unit in stale if unit.library != _SDK and unit.doubtful == doubtful]
                made = [scratch / f"system{doubtful}{number}.o" for number in range(len(system))]
                commands = [
                    (self.system.arguments(unit, path), f"compiling {unit.source}")
                    for unit, path in zip(system, made, strict=True)
                ]
                for unit, path, good in zip(
                    system, made, self._jobs.run(commands, may_fail=doubtful), strict=True
                ):
                    if good:
                        os.replace(path, places[unit])

    def _place(self, unit: Unit) -> Path:
        if unit.library != _SDK:
            rule = [self._tools.version, unit.arguments]
            return self._tools.artifact(digest(rule, self.system.root, [unit.source]), ".o", "system")
        name = digest(self._rule, self._sdk.root, [unit.source])
        shipped = self._sdk.libraries / f"{name}.o"
        return shipped if shipped.is_file() else self._tools.artifact(name, ".o")

    def defining(self, symbols: Iterable[str], *, cxx: bool) -> dict[str, Unit]:
        """Returns the unit that defines each of the symbols; leaves out those that none defines.

        Compiles the likeliest source for each symbol, and the next one if that does not define it. If the SDK
        defines some of them, returns only these: its functions may define the others. compiler_rt has
        definitions that others replace, so it is returned only if no other library defines any. libc++ and
        the SDK count only if `cxx`.
        """
        left = dict.fromkeys(symbols)
        for own in (True, False) if cxx else (False,):
            wanted = {
                symbol: (self._own(symbol) if own else self.system.candidates(symbol, cxx=cxx))
                for symbol in left
            }
            found = self._search({symbol: units for symbol, units in wanted.items() if units})
            if found and not own:
                first = {s: unit for s, unit in found.items() if unit is not self.system.compiler_rt}
                return first or found
            if found:
                return found
        return {}

    def _search(self, wanted: dict[str, list[Unit]]) -> dict[str, Unit]:
        found = dict[str, Unit]()
        turn = 0
        while wanted:
            tried = {symbol: units[turn] for symbol, units in wanted.items() if turn < len(units)}
            self.compile(tried.values())
            found |= {symbol: unit for symbol, unit in tried.items() if symbol in self._defines(unit)}
            wanted = {symbol: wanted[symbol] for symbol in tried if symbol not in found}
            turn += 1
        return found

    def _defines(self, unit: Unit) -> frozenset[str]:
        if unit not in self._defined:
            path = self._objects[unit]
            self._defined[unit] = defined_symbols(path.read_bytes()) if path is not None else frozenset()
        return self._defined[unit]

    def _own(self, symbol: str) -> list[Unit]:
        """Returns the sources of the SDK that may define a symbol, the likeliest first."""
        if not is_cxx(symbol):
            return [unit for unit in self.sdk_units if self._texts.defines_c(symbol, unit.source)]
        if is_standard(symbol):
            return []
        rated = [(self._texts.cxx_likelihood(symbol, unit.source), unit) for unit in self.sdk_units]
        rated.sort(key=lambda pair: -pair[0])
        return [unit for rating, unit in rated if rating]


def build_library(sdk: Sdk, tools: Toolchain) -> list[Path]:
    """Returns the objects of all sources of the SDK, compiled as far as the cache lacks them.

    A folder ``lib`` of the SDK with these files makes builds that use it compile none of these sources.

    Raises:
        BuildError: a source does not compile.
    """
    libraries = Libraries(sdk, tools)
    return [path for path in libraries.compile(libraries.sdk_units) if path is not None]


def link(
    libraries: Libraries,
    tools: Toolchain,
    objects: Sequence[Path],
    made: Path,
    name: str,
    *,
    archives: Sequence[Path] = (),
    cxx: bool = True,
    stack_bytes: int = flags.STACK_BYTES,
) -> list[Unit]:
    """Links `objects` with what they need of `archives` and of the libraries into the module `made`.

    Messages call it `name`. Returns the units that it needs. libc++ and the SDK belong to the libraries only
    if `cxx`. The module depends only on the inputs, not on what the cache has already.

    Raises:
        BuildError: a symbol is undefined, or an object that is needed does not compile.
    """
    needed = dict[Unit, Path]()
    start = libraries.system.start

    def add(units: Iterable[Unit]) -> None:
        units = list(units)
        needed.update(
            (unit, path) for unit, path in zip(units, libraries.compile(units), strict=True) if path
        )

    def of(*names: str) -> list[str | Path]:
        units = sorted((unit for unit in needed if unit.library in names), key=_order)
        # an archive: an object is linked only if it defines a symbol that others lack
        return ["--start-lib", *(needed[unit] for unit in units), "--end-lib"] if units else []

    add([start])
    while True:
        inputs = [needed[start], *of("libc"), *objects, *of(_SDK), *archives]
        for library in _AFTER:
            inputs += of(library)
        command = [*flags.LINK, "-z", f"stack-size={stack_bytes}", *inputs, "-o", made]
        status, words = tools.attempt([*command, "--no-demangle"])
        if not status:
            break
        missing = dict.fromkeys(_MISSING.findall(words))
        more = set(libraries.defining(missing, cxx=cxx).values()) - needed.keys()
        if not more:
            tools.run(command, f"linking {name}")  # fails, with readable names
        add(more)
    if words:
        tools.progress(words)
    return list(needed)


def _order(unit: Unit) -> Path:
    return unit.source
