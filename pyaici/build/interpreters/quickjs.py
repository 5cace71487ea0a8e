"""QuickJS-ng, an interpreter of JavaScript in four C files."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from ..toolchain import Toolchain
from .sdist import Sdist


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
