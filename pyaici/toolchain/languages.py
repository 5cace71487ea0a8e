"""The known interpreters: MicroPython and QuickJS-ng, and how the build compiles them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import ClassVar, Protocol

from . import flags
from .sdist import Sdist
from .sdk import BuildError
from .zig import Toolchain


class Language(Protocol):
    """An interpreter: the place of its sources and the way to compile them."""

    sdist: ClassVar[Sdist]
    #: the folder in the distribution with the sources
    prefix: ClassVar[str]
    #: compiler flags for its sources, besides `flags.FOREIGN`
    flags: ClassVar[tuple[str, ...]]
    #: whether its sources, and C that calls it, need setjmp
    setjmp: ClassVar[bool]

    def sources(self, tree: Path) -> list[Path]:
        """Returns the sources to compile, below the unpacked `tree`."""

    def generate(
        self, tree: Path, glue: list[Path], include: tuple[Path, ...], out: Path, tools: Toolchain
    ) -> None:
        """Writes headers that the sources include into ``out/genhdr``.

        These headers may depend on the `glue` (C sources), whose own headers are in the folders `include`.
        """


class QuickJs:
    """The `Language` of QuickJS-ng.

    It does not need the emulations of signals and clocks in WASI's libc: QuickJS-ng leaves out their uses on
    WASI.
    """

    sdist: ClassVar = Sdist(
        "QuickJS-ng",
        "quickjs_ng",
        "0.17.0.2",
        "43d2e48272208721a7aaea8e3f02d4b9318f12ef20cc4f5421b59d9a470706ef",
    )
    prefix: ClassVar = "upstream-quickjs"
    flags: ClassVar[tuple[str, ...]] = ("-D_GNU_SOURCE", "-funsigned-char")
    setjmp: ClassVar = False

    def sources(self, tree: Path) -> list[Path]:
        """Returns the engine, without its command line and its functions for files and processes."""
        return [tree / f"{name}.c" for name in ("dtoa", "libregexp", "libunicode", "quickjs")]

    def generate(
        self, tree: Path, glue: list[Path], include: tuple[Path, ...], out: Path, tools: Toolchain
    ) -> None:
        """Does nothing: QuickJS-ng has no generated headers."""


#: files of `py` to leave out: native code for other machines, and non-local jumps other than by setjmp
_NATIVE = re.compile(r"(asm|emitn|emitinline|nlr(?!setjmp\.c|\.c)).*")
#: files that the glue replaces with its own versions
_REPLACED = (
    *("formatfloat.c", "modbuiltins.c", "mpprint.c", "objclosure.c", "objdict.c", "objstr.c", "parsenum.c"),
    "vm.c",
)
#: files of `shared` that are compiled besides the core
_SHARED = ("runtime/sys_stdio_mphal.c",)
#: MicroPython's own build would take these from git and the clock
_VERSION = """\
#define MICROPY_GIT_TAG "v1.23.0"
#define MICROPY_GIT_HASH "none"
#define MICROPY_BUILD_DATE "2024-05-31"
"""
#: mode of makeqstrdefs.py -> (the script that makes a header of its output, the header)
_COLLECTED = {
    "module": ("makemoduledefs.py", "moduledefs.h"),
    "root_pointer": ("make_root_pointers.py", "root_pointers.h"),
}
_QSTRS = "qstrdefs.generated.h"


class MicroPython:
    """The `Language` of MicroPython. Errors of scripts are jumps out of the interpreter to its caller."""

    sdist: ClassVar = Sdist(
        "MicroPython",
        "mpy_cross_v6_3",
        "1.1.1",
        "55414c358f5844c784e76d3b253cbd7af5f243ddd4c0b47a26d3875d628df300",
    )
    prefix: ClassVar = "micropython"
    flags: ClassVar[tuple[str, ...]] = ()
    setjmp: ClassVar = True

    def sources(self, tree: Path) -> list[Path]:
        """Returns the core without the emitters of machine code, and the shared files."""
        core = sorted(
            path
            for path in (tree / "py").glob("*.c")
            if not _NATIVE.fullmatch(path.name) and path.name not in _REPLACED
        )
        return [*core, *(tree / "shared" / name for name in _SHARED)]

    def generate(
        self, tree: Path, glue: list[Path], include: tuple[Path, ...], out: Path, tools: Toolchain
    ) -> None:
        """Writes headers with the interned strings, modules and root pointers of the sources and the `glue`.

        Raises:
            BuildError: the preprocessor or one of MicroPython's own scripts fails.
        """
        headers, work = out / "genhdr", out / "work"
        headers.mkdir(parents=True)
        work.mkdir()
        (headers / "mpversion.h").write_text(_VERSION)
        for name in (_QSTRS, *(header for _, header in _COLLECTED.values())):
            (headers / name).touch()  # the sources include them already while they are being made
        generator = _Generator(tree, work, include, tools)
        # preprocess all sources as one file: this takes a second instead of many, and a missing name would
        # fail to compile
        everything = work / "everything.c"
        everything.write_text("".join(f'#include "{path}"\n' for path in (*self.sources(tree), *glue)))
        text = generator.preprocess(everything)
        made = {
            header: generator.python(script, generator.collect(mode, text))
            for mode, (script, header) in _COLLECTED.items()
        }
        made[_QSTRS] = generator.qstrs(text)
        for name, content in made.items():
            (headers / name).write_text(content)


class _Generator:
    """Runs MicroPython's scripts on preprocessed sources."""

    def __init__(self, tree: Path, work: Path, include: tuple[Path, ...], tools: Toolchain) -> None:
        self.scripts, self.work, self.include, self.tools = tree / "py", work, include, tools

    def preprocess(self, source: Path) -> Path:
        made = source.with_suffix(".i")
        options: list[str | Path] = [*flags.C, *flags.SETJMP, *flags.FOREIGN, "-DNO_QSTR"]
        for folder in self.include:
            options += ["-I", folder]
        self.tools.run(["cc", *options, "-E", source, "-o", made], f"preprocessing {source.name}")
        return made

    def python(self, script: str, *arguments: str | Path) -> str:
        command = [sys.executable, str(self.scripts / script), *map(str, arguments)]
        done = subprocess.run(command, check=False, capture_output=True, text=True, errors="replace")
        if done.returncode:
            raise BuildError(f"{script} of MicroPython failed:\n{(done.stderr + done.stdout).strip()}")
        return done.stdout

    def collect(self, mode: str, text: Path) -> Path:
        """Returns a file with all names of one kind in the sources, sorted and without duplicates."""
        found, together = self.work / mode, self.work / f"{mode}.collected"
        found.mkdir()
        self.python("makeqstrdefs.py", "split", mode, text, found, "_")
        self.python("makeqstrdefs.py", "cat", mode, "_", found, together)
        return together

    def qstrs(self, text: Path) -> str:
        """Returns the header of the interned strings in the sources and in ``qstrdefs.h``.

        The strings in ``qstrdefs.h`` depend on the port.
        """
        known = (self.scripts / "qstrdefs.h").read_text() + self.collect("qstr", text).read_text()
        # quote them, or the preprocessor would treat them as macros and operators
        source = self.work / "qstrs.c"
        source.write_text(re.sub(r"(?m)^Q\(.*\)", r'"\g<0>"', known))
        plain = self.work / "qstrs.txt"
        plain.write_text(re.sub(r'(?m)^"(Q\(.*\))"', r"\1", self.preprocess(source).read_text()))
        return self.python("makeqstrdata.py", plain)


LANGUAGES: dict[str, Language] = {"micropython": MicroPython(), "quickjs": QuickJs()}
