"""The grammars that come with the package, and how users name them."""

from __future__ import annotations

from pathlib import Path

from pyaici.build.sdk import source_tree

_PACKAGED = Path(__file__).resolve().parent / "_grammars"


def bundled_grammars() -> dict[str, Path]:
    """File of each by its name, such as ``c.y``, sorted: of the installed package, or of the source tree."""
    tree = source_tree()
    folders = sorted((tree / "controllers").glob("*/grammars")) if tree else [_PACKAGED]
    found = {path.name: path for folder in folders for path in folder.iterdir() if path.is_file()}
    return dict(sorted(found.items()))


def find_grammar(name: str) -> Path | None:
    """The bundled grammar of this name, if there is one."""
    return bundled_grammars().get(name)
