"""The SDK of this installation, the errors of builds, and the commands that install what is missing."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path


class BuildError(Exception):
    """A controller cannot be built; the message names the cause and contains the compiler's output."""


class MissingToolchain(BuildError):
    """The compiler for this language is not installed; the message says how to get it."""


class MissingSources(BuildError):
    """The sources of an interpreter are missing; the message is one line and says how to get them."""


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
            f"the controller SDK is missing: no {root / 'include' / 'aici.h'}; reinstall the package pyaici"
        )
    return Sdk(root)


def pip_command() -> list[str] | None:
    """Returns the command of pip: that of this environment, or the copy that comes with Python.

    Environments of uv have no pip. Returns None if there is neither.
    """
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    if (bundled := importlib.util.find_spec("ensurepip")) is not None and bundled.origin is not None:
        for wheel in sorted((Path(bundled.origin).parent / "_bundled").glob("pip-*.whl")):
            return [sys.executable, f"{wheel}/pip"]
    return None
