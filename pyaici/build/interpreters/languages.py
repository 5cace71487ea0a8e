"""The interpreters that are known, and what each of them needs to be told to the build."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Protocol

from ..toolchain import Toolchain
from .micropython import MicroPython
from .quickjs import QuickJs
from .sdist import Sdist


class Language(Protocol):
    """One interpreter: where its sources are and how they are compiled."""

    sdist: ClassVar[Sdist]
    #: the folder of the distribution that holds the sources
    prefix: ClassVar[str]
    #: for its sources, beside `flags.FOREIGN`
    flags: ClassVar[tuple[str, ...]]
    #: do its sources, and C that calls it, need setjmp?
    setjmp: ClassVar[bool]

    def sources(self, tree: Path) -> list[Path]:
        """What is compiled, below the unpacked `tree`."""

    def generate(
        self, tree: Path, glue: list[Path], include: tuple[Path, ...], out: Path, tools: Toolchain
    ) -> None:
        """Writes headers that the sources include into ``out/genhdr``.

        They may depend on the `glue`, sources in C, whose own headers are in the folders `include`.
        """


LANGUAGES: dict[str, Language] = {"micropython": MicroPython(), "quickjs": QuickJs()}
