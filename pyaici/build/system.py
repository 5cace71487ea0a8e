"""The libraries of C and C++ that come with Zig: their sources, and the flags with which Zig builds them.

Zig itself builds all of a library, some seven hundred sources, before its first link. The build compiles only
the sources that a link needs, to the same objects.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from .symbols import Texts, is_cxx, is_standard

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
