"""The library of an interpreter, embedded as C arrays."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pyaici.build import BuildError
from pyaici.build.interpreters.embedded import HEADER, library_files, write_library


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "library").mkdir()
    return tmp_path


def written(folder: Path) -> tuple[dict[str, bytes], list[tuple[str, str, int]]]:
    """Returns the arrays of the header by name, and its table as rows of name, array and length."""
    write_library(folder, folder)
    text = (folder / HEADER).read_text()
    arrays = {
        name: bytes(int(number) % 256 for number in re.findall(r"-?\d+", numbers))
        for name, numbers in re.findall(r"static const char (\w+)\[\] = \{([^}]*)\};", text)
    }
    lengths = {name: int(n) for name, n in re.findall(r"enum \{ (\w+) = (\d+) \};", text)}
    table = re.findall(r'\{"([^"]+)", (\w+), (\w+)\}', text)
    assert text.rstrip().endswith("{0, 0, 0},\n};"), "glue code reads the table up to this entry"
    return arrays, [(name, array, lengths[length]) for name, array, length in table]


def test_library_files_are_sorted_and_exclude_subfolders(folder: Path) -> None:
    library = folder / "library"
    (library / "deeper").mkdir()
    for name in ("b.py", "a.py", "deeper/c.py"):
        (library / name).write_text("")
    assert library_files(folder) == [library / "a.py", library / "b.py"]


def test_folder_without_a_library_has_no_files(tmp_path: Path) -> None:
    assert library_files(tmp_path) == []
    assert written(tmp_path) == ({}, [])


def test_files_are_embedded_byte_for_byte(folder: Path) -> None:
    contents = {
        "long.py": bytes(range(1, 128)) * 3,
        "empty.py": b"",
        "signed.py": "Grüße, \u20ac\n".encode(),
        "quotes.py": b'"\\\n\x00"}; end',
    }
    for name, content in contents.items():
        (folder / "library" / name).write_bytes(content)
    arrays, table = written(folder)
    assert [name for name, _, _ in table] == sorted(contents)
    for name, array, length in table:
        assert arrays[array] == contents[name] + b"\0"
        assert length == len(contents[name])


def test_bytes_are_written_as_signed_chars(folder: Path) -> None:
    (folder / "library" / "a.py").write_text("\u00ff")
    write_library(folder, folder)
    assert "-61, -65, 0," in (folder / HEADER).read_text()


@pytest.mark.parametrize("name", ["two-words.py", "1.py", "sch\u00f6n.py", "a.b.py"])
def test_file_name_that_is_not_a_c_identifier_is_refused(folder: Path, name: str) -> None:
    (folder / "library" / name).write_text("")
    with pytest.raises(BuildError, match="only letters, digits and _"):
        write_library(folder, folder)


def test_file_that_is_not_utf8_is_refused(folder: Path) -> None:
    (folder / "library" / "a.py").write_bytes(b"\xff")
    with pytest.raises(BuildError, match=r"a\.py is not UTF-8"):
        write_library(folder, folder)
