"""MicroPython: an interpreter of Python, whose headers are made out of its own sources and of the glue's."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

from .. import flags
from ..errors import BuildError
from ..toolchain import Toolchain
from .sdist import Sdist

#: machine code, for machines that are not this one, and other ways to jump out of functions
_NATIVE = re.compile(r"(asm|emitn|emitinline|nlr(?!setjmp\.c|\.c)).*")
#: what the glue has its own version of
_REPLACED = ("objclosure.c", "objdict.c", "vm.c")
#: beside the core
_SHARED = ("runtime/sys_stdio_mphal.c",)
#: what the build of MicroPython would take from git and the clock
_VERSION = """\
#define MICROPY_GIT_TAG "v1.23.0"
#define MICROPY_GIT_HASH "none"
#define MICROPY_BUILD_DATE "2024-05-31"
"""
#: a mode of makeqstrdefs.py, the script that makes a header of what it finds, and the header
_COLLECTED = {
    "module": ("makemoduledefs.py", "moduledefs.h"),
    "root_pointer": ("make_root_pointers.py", "root_pointers.h"),
}
_QSTRS = "qstrdefs.generated.h"


class MicroPython:
    """See `Language`. Errors of scripts are jumps, from inside the interpreter to who called it."""

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
        """The core, without what makes machine code."""
        core = sorted(
            path
            for path in (tree / "py").glob("*.c")
            if not _NATIVE.fullmatch(path.name) and path.name not in _REPLACED
        )
        return [*core, *(tree / "shared" / name for name in _SHARED)]

    def generate(
        self, tree: Path, glue: list[Path], include: tuple[Path, ...], out: Path, tools: Toolchain
    ) -> None:
        """Writes the interned strings, modules and root pointers that the sources and the `glue` name.

        Raises:
            BuildError: the preprocessor or one of MicroPython's own scripts fails.
        """
        headers, work = out / "genhdr", out / "work"
        headers.mkdir(parents=True)
        work.mkdir()
        (headers / "mpversion.h").write_text(_VERSION)
        for name in (_QSTRS, *(header for _, header in _COLLECTED.values())):
            (headers / name).touch()  # included already while they are being made
        generator = _Generator(tree, work, include, tools)
        # all sources as one: a second instead of many, and a name that went missing would not compile
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
        """The file of everything of one kind that the sources name, each once and sorted."""
        found, together = self.work / mode, self.work / f"{mode}.collected"
        found.mkdir()
        self.python("makeqstrdefs.py", "split", mode, text, found, "_")
        self.python("makeqstrdefs.py", "cat", mode, "_", found, together)
        return together

    def qstrs(self, text: Path) -> str:
        """The interned strings: of the sources, and of ``qstrdefs.h``, which depend on the port."""
        known = (self.scripts / "qstrdefs.h").read_text() + self.collect("qstr", text).read_text()
        # quoted, or the preprocessor would take them for macros and operators
        source = self.work / "qstrs.c"
        source.write_text(re.sub(r"(?m)^Q\(.*\)", r'"\g<0>"', known))
        plain = self.work / "qstrs.txt"
        plain.write_text(re.sub(r'(?m)^"(Q\(.*\))"', r"\1", self.preprocess(source).read_text()))
        return self.python("makeqstrdata.py", plain)
