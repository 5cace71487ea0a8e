"""The known interpreters, and the interface that describes them to the build."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Protocol

from ..toolchain import Toolchain
from .micropython import MicroPython
from .quickjs import QuickJs
from .sdist import Sdist


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


LANGUAGES: dict[str, Language] = {"micropython": MicroPython(), "quickjs": QuickJs()}
