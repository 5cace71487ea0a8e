"""The languages of scripts: how their files are called, and which controller runs them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Language:
    """One of them."""

    #: as people call it
    name: str
    #: the bundled controller that runs scripts of it
    controller: str
    #: endings of files
    suffixes: tuple[str, ...]

    @property
    def word(self) -> str:
        """As requests, and what has been uploaded, call it."""
        return self.name.lower()


PYTHON = Language("Python", "pyctrl", (".py",))
JAVASCRIPT = Language("JavaScript", "jsctrl", (".js", ".mjs"))
LANGUAGES = (PYTHON, JAVASCRIPT)


def language_of(name: str | Path | None) -> Language | None:
    """The language of a script by the name of its file; None: this is no name of a script."""
    if name is None:
        return None
    suffix = Path(name).suffix.lower()
    return next((language for language in LANGUAGES if suffix in language.suffixes), None)
