"""The libraries of C and C++ that come with Zig: which of their sources may define a name, and their flags.

Zig itself builds all of a library, some seven hundred sources, before its first link. The build compiles only
the sources that a link needs, to the same objects. It finds them by the names that an object defines, and by
the text of sources.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .sdk import BuildError

#: numbers of the format of relocatable objects (the document Linking.md of WebAssembly's tool conventions)
_CUSTOM_SECTION, _SYMBOL_TABLE = 0, 8
_FUNCTION, _DATA, _GLOBAL, _SECTION, _TAG, _TABLE = range(6)
_LOCAL, _UNDEFINED = 0x02, 0x10


class _Reader:
    """Reads numbers and names from a part of an object."""

    def __init__(self, data: bytes, at: int, end: int) -> None:
        if end > len(data):
            raise ValueError("a part ends after the file")
        self.data, self.at, self.end = data, at, end

    def byte(self) -> int:
        if self.at >= self.end:
            raise ValueError("a part ends too early")
        self.at += 1
        return self.data[self.at - 1]

    def number(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def part(self) -> _Reader:
        """Returns the next part, which begins with its length, and goes on behind it."""
        size = self.number()
        start = self.at
        if start + size > self.end:
            raise ValueError("a part is longer than what contains it")
        self.at = start + size
        return _Reader(self.data, start, self.at)

    def name(self) -> str:
        part = self.part()
        return self.data[part.at : part.end].decode()


def defined_symbols(data: bytes) -> frozenset[str]:
    """Returns the names that a relocatable WebAssembly object defines for others.

    Raises:
        BuildError: `data` is not such an object.
    """
    try:
        if data[:8] != b"\0asm\1\0\0\0":
            raise ValueError("it does not begin as a module")
        file = _Reader(data, 8, len(data))
        while file.at < file.end:
            kind, section = file.byte(), file.part()
            if kind == _CUSTOM_SECTION and section.name() == "linking":
                return frozenset(_linking(section))
    except (ValueError, UnicodeDecodeError) as error:
        raise BuildError(f"not an object for Wasm: {error}") from error
    raise BuildError("not an object for Wasm: it has no symbols")


def _linking(section: _Reader) -> Iterable[str]:
    section.number()  # the version
    while section.at < section.end:
        kind, part = section.byte(), section.part()
        if kind == _SYMBOL_TABLE:
            for _ in range(part.number()):
                if (name := _symbol(part)) is not None:
                    yield name


def _symbol(part: _Reader) -> str | None:
    """Reads a symbol; returns its name if the object defines it for others."""
    kind, flags = part.byte(), part.number()
    if kind == _SECTION:
        part.number()
        return None
    if kind not in (_FUNCTION, _DATA, _GLOBAL, _TAG, _TABLE):
        raise ValueError(f"a symbol of the unknown kind {kind}")
    if kind != _DATA:
        part.number()
        if flags & _UNDEFINED and not flags & 0x40:  # the import has the name
            return None
    name = part.name()
    if kind == _DATA and not flags & _UNDEFINED:
        for _ in range(3):
            part.number()
    return None if flags & (_LOCAL | _UNDEFINED) else name


#: what precedes the name proper: of tables of types and virtual functions, guards of variables, thunks
_SPECIAL = re.compile(r"_Z(?:T[VTISC]|GV|T[hv]n?\d+_(?:n\d+_)?)")
_SUBSTITUTE = re.compile(r"S(?:[tabsiod]|[0-9A-Z]*_)")
_ABI_TAG = re.compile(r"B\d+[a-z]+\d+")
#: names of libc++ and libc++abi, and operators new and delete
_STANDARD = re.compile(r"_Z(?:N?[KVrRO]*(?:S[tabsiod]|10__cxxabiv1)|n[wa]|d[la])")
_ALLOCATION = re.compile(r"_Z(?:n[wa]|d[la])")
_ANYWHERE = ("__1", "_GLOBAL__N_1")


def is_cxx(symbol: str) -> bool:
    """Returns whether a symbol is a mangled name of C++."""
    return symbol.startswith("_Z")


def is_standard(symbol: str) -> bool:
    """Returns whether a symbol is a mangled name of C++ that its standard library defines."""
    return _STANDARD.match(_SPECIAL.sub("_Z", symbol)) is not None


@functools.cache
def identifiers(symbol: str) -> tuple[str, ...]:
    """Returns the identifiers in the qualified name of a mangled symbol: namespaces, classes, the function.

    Leaves out parameters and arguments of templates. The last one of an operator is ``operator``.
    """
    if (allocates := _ALLOCATION.match(symbol)) is not None:
        return ("operator new" if allocates[0][2] == "n" else "operator delete",)
    text = _ABI_TAG.sub("", _SPECIAL.sub("_Z", symbol))
    at, depth, found, ended = 2, 0, list[str](), False
    while at < len(text) and not ended:
        letter = text[at]
        if number := re.compile(r"\d+").match(text, at):
            at = number.end() + int(number[0])
            if depth <= 1:
                found.append(text[number.end() : at])
            ended = depth == 0
        elif substitute := _SUBSTITUTE.match(text, at):
            at = substitute.end()
        elif letter == "L":  # a literal
            at = text.find("E", at) + 1 or len(text)
        elif depth == 1 and letter in "CD" and text[at + 1 : at + 2].isdigit():
            break  # a constructor or destructor has the name of its class
        else:
            if depth <= 1 and letter.islower() and not (depth and letter in "rn"):
                found.append("operator")
                break
            depth += (letter in "NIXJF") - (letter == "E")
            ended = depth <= 0
            at += 1
    return tuple(name for name in found if name and name not in _ANYWHERE) or ("operator",)


class Texts:
    """The texts of sources and headers, in which definitions are searched."""

    def __init__(self) -> None:
        self._read = dict[Path, str]()

    def of(self, path: Path) -> str:
        """Returns the text of a file."""
        if path not in self._read:
            self._read[path] = path.read_text(errors="replace")
        return self._read[path]

    def cxx_likelihood(self, symbol: str, path: Path) -> int:
        """Returns how likely a source defines the mangled name `symbol`: 0, or more if the name is in it.

        A template that libc++ instantiates can be in another file, so its class is enough.
        """
        text, names = self.of(path), identifiers(symbol)
        if names[-1] not in text and not (is_standard(symbol) and names[0] in text):
            return 0
        last = re.escape(names[-1])
        likely = 1 + sum(name in text for name in names)
        if len(names) > 1:
            member = rf"\b{re.escape(names[-2])}(?:<[^;{{}}]*?>)?::~?{last}\b"
            likely += 4 * (re.search(member, text) is not None)
        likely += 2 * (f"{names[-1]}::" in text)
        # a definition, not a call, begins a line, and a body follows the parameters
        function = rf"(?m)^[\w(\[](?:[^\n;=#(]*[\s*&:])?{last}\s*\((?:[^;{{}}]|{{[^;{{}}]*}})*\)[\s\w]*{{"
        if names[-1] != "operator" or not is_standard(symbol):
            likely += 6 * (re.search(function, text) is not None)
        stem = path.stem.replace("_", "")
        small = [name.replace("_", "").lower() for name in names]
        if is_standard(symbol):  # the classes of an operator's parameters count, too
            small.append(symbol.replace("_", "").lower())
        return likely + 4 * any(stem in name or name in stem for name in small if len(name) > 2)

    def defines_c(self, name: str, path: Path) -> bool:
        """Returns whether a source seems to define the function or variable `name` of C."""
        text = self.of(path)
        if name not in text:
            return False
        name = re.escape(name)
        function = rf"^(?:[A-Za-z_][^\n;=]*\b)?{name}\s*\([^;]*?\{{"
        alias = rf"alias\s*\([^)]*\b{name}\s*\)"
        variable = rf"^(?!extern|#|typedef)[A-Za-z_][^\n;(]*\b{name}\s*(?:\[|=|;)"
        return re.search(rf"(?m){function}|{alias}|{variable}", text) is not None


#: begins the names of folders in flags that are relative to Zig's folder `lib`
_HERE = "@/"
_WASI, _MUSL, _CXX, _CXXABI = "libc/wasi", "libc/musl", "libcxx", "libcxxabi"
_BOTTOM, _TOP = f"{_WASI}/libc-bottom-half", f"{_WASI}/libc-top-half"
_HEADERS = ("libc/include/wasm-wasi-musl", "libc/include/generic-musl")
_INTERNAL = (
    *(f"{_TOP}/musl/src/include", f"{_MUSL}/src/include"),
    *(f"{_TOP}/musl/src/internal", f"{_MUSL}/src/internal"),
)
#: the flags that the driver `zig cc` would pass to Clang
_CLANG = (
    *("--no-default-config", "-target", "wasm32-wasip1", "-mcpu=lime1", "-msimd128", "-mbulk-memory"),
    *("-nostdinc", "-DNDEBUG", "-isystem", f"{_HERE}include", "-O2", "-fno-omit-frame-pointer"),
    *("-fno-stack-protector", "-ffunction-sections", "-fdata-sections", "-g0", "-w"),
)
#: settings of Zig's libc++, with which it also compiles sources that include its headers
_CXX_SETTINGS = (
    *("-D_LIBCPP_ABI_VERSION=1", "-D_LIBCPP_ABI_NAMESPACE=__1", "-D_LIBCPP_HAS_THREADS=0"),
    *("-D_LIBCPP_HAS_MONOTONIC_CLOCK", "-D_LIBCPP_HAS_TERMINAL", "-D_LIBCPP_HAS_MUSL_LIBC=1"),
    *("-D_LIBCXXABI_DISABLE_VISIBILITY_ANNOTATIONS", "-D_LIBCPP_DISABLE_VISIBILITY_ANNOTATIONS"),
    *("-D_LIBCPP_HAS_VENDOR_AVAILABILITY_ANNOTATIONS=0", "-D_LIBCPP_HAS_FILESYSTEM=0"),
    *("-D_LIBCPP_HAS_RANDOM_DEVICE", "-D_LIBCPP_HAS_LOCALIZATION", "-D_LIBCPP_HAS_UNICODE"),
    *("-D_LIBCPP_HAS_WIDE_CHARACTERS", "-D_LIBCPP_HAS_NO_STD_MODULES", "-D_LIBCPP_PSTL_BACKEND_SERIAL"),
    "-D_LIBCPP_HARDENING_MODE=_LIBCPP_HARDENING_MODE_NONE",
    "-D_LIBCPP_ASSERTION_SEMANTIC_DEFAULT=_LIBCPP_ASSERTION_SEMANTIC_IGNORE",
)
#: runtimes that are written in Zig
_ZIG = (
    *("-target", "wasm32-wasi", "-mcpu=lime1+simd128+bulk_memory", "-O", "ReleaseFast", "-fstrip", "-lc"),
    *("-fno-stack-check", "-fno-stack-protector", "-fno-builtin"),
)
#: of libc++abi: needs exceptions, or threads
_NOT_ON_WASI = ("cxa_exception", "cxa_personality", "cxa_thread_atexit")


def _include(*folders: str) -> tuple[str, ...]:
    return tuple(word for folder in folders for word in ("-I", _HERE + folder))


def _system(*folders: str) -> tuple[str, ...]:
    return tuple(word for folder in folders for word in ("-isystem", _HERE + folder))


_C = (
    *("clang", *_CLANG, "-fno-PIC", "-std=gnu17", "-fno-trapping-math", "-mthread-model", "single"),
    *(*_include(f"{_BOTTOM}/cloudlibc/src"), *_system(*_HEADERS), "-DBULK_MEMORY_THRESHOLD=32"),
)
_BOTTOM_HALF = _include(
    f"{_BOTTOM}/headers/private", f"{_BOTTOM}/cloudlibc/src/include", f"{_BOTTOM}/cloudlibc/src", *_INTERNAL
)
_TOP_HALF = _include(
    *_INTERNAL, f"{_TOP}/musl/arch/wasm32", f"{_MUSL}/arch/generic", f"{_TOP}/headers/private"
)
_CPP = (
    *("clang", *_CLANG, "-fPIC", "-nostdinc++", "-std=c++23", *_system(*_HEADERS), *_CXX_SETTINGS),
    *("-fno-exceptions", "-fvisibility=hidden", "-fvisibility-inlines-hidden", "-D_LIBCPP_BUILDING_LIBRARY"),
)
#: flags of libc's folders
_LIBC = {
    f"{_BOTTOM}/cloudlibc": _BOTTOM_HALF,
    f"{_BOTTOM}/sources": _BOTTOM_HALF,
    f"{_BOTTOM}/clocks": (),
    f"{_BOTTOM}/getpid": (),
    f"{_BOTTOM}/mman": (),
    f"{_BOTTOM}/signal": (),
    f"{_WASI}/fts": _include(f"{_WASI}/fts"),
    f"{_WASI}/thread-stub": _TOP_HALF,
    f"{_TOP}/sources": _TOP_HALF,
    f"{_TOP}/musl/src": _TOP_HALF,
}
#: sources of musl for which the macros of emulated signals are set
_SIGNALS = ("signal/psignal.c", "string/strsignal.c")


@dataclass(frozen=True)
class Unit:
    """A source of a library; `arguments` are those of Zig that compile it, without the names of files."""

    library: str
    source: Path
    arguments: tuple[str, ...]
    #: whether Zig may leave it out of the library, because it does not compile for WASI
    doubtful: bool = False


class System:
    """The libraries of the Zig whose folder ``lib`` is `root`."""

    def __init__(self, root: Path, texts: Texts) -> None:
        self.root, self._texts = root, texts
        start = f"{_BOTTOM}/crt/crt1-reactor.c"
        #: what every module starts with
        self.start = Unit("start", root / start, (*_C, "-Os", *_BOTTOM_HALF))
        self.compiler_rt = Unit("compiler_rt", root / "compiler_rt.zig", ("build-obj", *_ZIG))
        #: the part of libc that is written in Zig
        self.zigc = Unit("zigc", root / "c.zig", ("build-obj", *_ZIG))
        self._libc = list[Unit]()
        self._cxx = list[Unit]()
        self._macros = dict[str, list[str]]()

    def arguments(self, unit: Unit, made: Path) -> list[str | Path]:
        """Returns the arguments of Zig that compile `unit` to the object `made`."""
        words = [f"{self.root}/{w.removeprefix(_HERE)}" if w.startswith(_HERE) else w for w in unit.arguments]
        output = ["-c", "-o", made] if words[0] == "clang" else ["--name", unit.library, f"-femit-bin={made}"]
        return [*words, unit.source, *output]

    def candidates(self, symbol: str, *, cxx: bool) -> list[Unit]:
        """Returns the sources that may define `symbol`, the likeliest first.

        Those of libc++ only if `cxx`; those written in Zig only if no other source can define it.
        """
        if is_cxx(symbol):
            return self._likely(symbol) if cxx and is_standard(symbol) else []
        units, names = self._libc_units() + (self._cxx_units() if cxx else []), self._names(symbol)
        sure, unsure = list[Unit](), list[Unit]()
        for unit in units:
            if unit.source.stem == symbol or any(self._texts.defines_c(name, unit.source) for name in names):
                sure.append(unit)
            elif any(name in self._texts.of(unit.source) for name in names):
                unsure.append(unit)
        return [*sure, self.zigc, self.compiler_rt, *unsure]

    def _likely(self, symbol: str) -> list[Unit]:
        rated = [(self._texts.cxx_likelihood(symbol, unit.source), unit) for unit in self._cxx_units()]
        rated.sort(key=lambda pair: -pair[0])
        return [unit for _, unit in rated]

    def _names(self, symbol: str) -> tuple[str, ...]:
        """Returns the names that stand for `symbol` in sources: itself, and macros that are defined as it."""
        return (symbol, *self._macros.get(symbol, ()))

    def _libc_units(self) -> list[Unit]:
        """Returns the sources of libc in the order in which they take precedence: WASI's own, then musl's."""
        if not self._libc:
            for folder, more in _LIBC.items():
                for source in sorted((self.root / folder).rglob("*.c")):
                    if source.name != "rt.c":  # of setjmp, which needs exceptions
                        self._libc.append(Unit("libc", source, (*_C, "-O3", *more)))
            own, musl = self.root / _TOP / "musl", self.root / _MUSL
            for source in sorted(musl.glob("src/*/*.c")):
                name = source.relative_to(musl)
                # WASI has no system calls like those of Linux
                if not (own / name).exists() and not re.search("syscall[^.]|SYS_", self._texts.of(source)):
                    more = ("-D_WASI_EMULATED_SIGNAL",) if str(name).endswith(_SIGNALS) else ()
                    self._libc.append(Unit("libc", source, (*_C, "-O3", *_TOP_HALF, *more), doubtful=True))
            for header in sorted({*own.glob("src/**/*.h"), *musl.glob("src/**/*.h")}):
                for name, symbol in re.findall(r"(?m)^#define (\w+)[ \t]+(__\w+)$", self._texts.of(header)):
                    self._macros.setdefault(symbol, []).append(name)
        return self._libc

    def _cxx_units(self) -> list[Unit]:
        if not self._cxx:
            cxx, abi = self.root / _CXX, self.root / _CXXABI
            building = (
                *("-DLIBC_NAMESPACE=__llvm_libc_common_utils", "-DLIBCXX_BUILDING_LIBCXXABI"),
                *("-D_LIBCPP_HAS_NO_PRAGMA_SYSTEM_HEADER", "-faligned-allocation"),
                *_include(f"{_CXX}/include", f"{_CXXABI}/include", f"{_CXX}/src", f"{_CXX}/libc"),
            )
            for source in sorted((*cxx.glob("src/*.cpp"), *cxx.glob("src/ryu/*.cpp"))):
                self._cxx.append(Unit("libc++", source, (*_CPP, *building), doubtful=True))
            building = (
                *("-D_LIBCXXABI_BUILDING_LIBRARY", "-D_LIBCXXABI_HAS_NO_THREADS", "-fstrict-aliasing"),
                *_include(f"{_CXXABI}/include", f"{_CXX}/include", f"{_CXX}/src"),
            )
            for source in sorted(abi.glob("src/*.cpp")):
                if source.stem not in _NOT_ON_WASI:
                    self._cxx.append(Unit("libc++abi", source, (*_CPP, *building)))
        return self._cxx
