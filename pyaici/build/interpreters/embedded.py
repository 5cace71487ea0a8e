"""Writes an interpreter's library, in the language of its scripts, as C that the glue includes."""

from __future__ import annotations

from pathlib import Path

from ..errors import BuildError

HEADER = "aici_library.h"
#: bytes per line
_WIDTH = 24


def library_files(folder: Path) -> list[Path]:
    """Returns the files of ``library`` in a controller's folder, sorted."""
    return sorted(path for path in (folder / "library").glob("*") if path.is_file())


def write_library(folder: Path, out: Path) -> None:
    """Writes the header into `out`.

    For each ``library/NAME.EXT`` the header has an array ``NAME_library``, which ends with a zero that
    ``NAME_library_length`` does not count. ``library_files`` lists the name, text and length of each file.

    Raises:
        BuildError: a file's name is not a C identifier, or its content is not UTF-8.
    """
    text = "/* written by the build: the files of library/ */\n"
    for path in library_files(folder):
        name, content = path.stem, path.read_bytes()
        if not (name.isascii() and name.isidentifier()):
            raise BuildError(f"{path}: its name must be a C identifier: only letters, digits and _")
        try:
            content.decode()
        except UnicodeDecodeError as error:
            raise BuildError(f"{path} is not UTF-8: {error}") from error
        text += f"static const char {name}_library[] = {{\n"
        ended = [*content, 0]
        # a char may be signed
        signed = [str(byte - 256 if byte > 127 else byte) for byte in ended]
        for start in range(0, len(signed), _WIDTH):
            text += f"    {', '.join(signed[start : start + _WIDTH])},\n"
        text += f"}};\nenum {{ {name}_library_length = {len(content)} }};\n"
    text += "typedef struct library_file {\n    const char *name, *text;\n"
    text += "    unsigned long length;\n} library_file;\n"
    text += "static const library_file library_files[] __attribute__((unused)) = {\n"
    for path in library_files(folder):
        text += f'    {{"{path.name}", {path.stem}_library, {path.stem}_library_length}},\n'
    text += "    {0, 0, 0},\n};\n"
    (out / HEADER).write_text(text)
