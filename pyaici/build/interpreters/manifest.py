"""The manifest in a folder with an interpreter's glue."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from ..errors import BuildError

MANIFEST = "interpreter.toml"


def is_interpreter(folder: Path) -> bool:
    """Returns whether a folder contains the glue of an interpreter."""
    return (folder / MANIFEST).is_file()


@dataclass(frozen=True)
class Manifest:
    """The contents of an ``interpreter.toml``."""

    #: a key of `LANGUAGES`
    interpreter: str
    #: size of the module's stack, in KiB
    stack_kib: int

    @classmethod
    def read(cls, folder: Path, known: list[str]) -> Manifest:
        """Reads the manifest in `folder`.

        Raises BuildError if it does not name one of the `known` interpreters and a stack of 16 to 4096 KiB,
        or has other entries.
        """
        path = folder / MANIFEST
        try:
            content = tomllib.loads(path.read_text())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise BuildError(f"{path}: {error}") from error
        interpreter, stack = content.pop("interpreter", None), content.pop("stack_kib", None)
        if interpreter not in known:
            raise BuildError(f"{path}: interpreter must be one of {', '.join(known)}, not {interpreter!r}")
        if not isinstance(stack, int) or not 16 <= stack <= 4096:
            raise BuildError(f"{path}: stack_kib must be a number of KiB, 16 to 4096, not {stack!r}")
        if content:
            raise BuildError(
                f"{path}: unknown entries: {', '.join(content)} (the entries are interpreter and stack_kib)"
            )
        return cls(interpreter, stack)
