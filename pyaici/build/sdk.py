"""Finds the controller SDK, in the installed package or in the source tree."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .errors import BuildError

CXX_SUFFIXES = (".cpp", ".cc", ".cxx")
HEADER_SUFFIXES = (".h", ".hpp", ".hh", ".inc")

_PACKAGE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Sdk:
    """The SDK's folder: headers in ``include``, C++ sources in ``src``, a folder for each other language."""

    root: Path

    @property
    def include(self) -> Path:
        """The folder for ``-I``."""
        return self.root / "include"

    @property
    def libraries(self) -> Path:
        """The folder of the compiled sources, objects named by their digests; only wheels contain it."""
        return self.root / "lib"

    @property
    def zig_module(self) -> Path:
        """The module that a Zig controller imports with ``@import("aici")``."""
        return self.root / "zig" / "aici.zig"

    @property
    def rust_crate(self) -> Path:
        """The crate `aici`, on which a controller in Rust depends."""
        return self.root / "rust"

    @property
    def assemblyscript(self) -> Path:
        """The folder of ``aici.ts``, a library of asc."""
        return self.root / "assemblyscript"

    def cxx_sources(self) -> list[Path]:
        """Returns the C++ sources of the SDK's library, sorted."""
        return sorted(p for p in (self.root / "src").rglob("*") if p.suffix in CXX_SUFFIXES)

    def headers(self) -> list[Path]:
        """Returns the public and private headers, sorted."""
        return sorted(
            p
            for folder in ("include", "src")
            for p in (self.root / folder).rglob("*")
            if p.suffix in HEADER_SUFFIXES
        )


def source_tree() -> Path | None:
    """Returns the root of the source tree that contains this package, or None for an installed wheel."""
    root = _PACKAGE.parent
    return root if (root / "controllers" / "sdk" / "include" / "aici.h").is_file() else None


def install_command(extras: str) -> str:
    """Returns the command that installs extras of this package, such as "llama,server"."""
    tree = source_tree()
    return f"{tree}/scripts/setup.sh {extras}" if tree else f'pip install "pyaici[{extras}]"'


def find_sdk() -> Sdk:
    """Returns the SDK of this installation.

    Raises:
        BuildError: neither the source tree nor the installed package has one.
    """
    tree = source_tree()
    root = tree / "controllers" / "sdk" if tree else _PACKAGE / "_sdk"
    if not (root / "include" / "aici.h").is_file():
        raise BuildError(
            f"the controller SDK is missing: no {root / 'include' / 'aici.h'}; reinstall the package aici"
        )
    return Sdk(root)
