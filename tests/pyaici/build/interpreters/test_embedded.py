"""The library of an interpreter as C."""

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
    """What the header says: the arrays by name, and the table's rows of name, array and length."""
    write_library(folder, folder)
    text = (folder / HEADER).read_text()
    arrays = {
        name: bytes(int(number) % 256 for number in re.findall(r"-?\d+", numbers))
        for name, numbers in re.findall(r"static const char (\w+)\[\] = \{([^}]*)\};", text)
    }
    lengths = {name: int(n) for name, n in re.findall(r"enum \{ (\w+) = (\d+) \};", text)}
    table = re.findall(r'\{"([^"]+)", (\w+), (\w+)\}', text)
    assert text.rstrip().endswith("{0, 0, 0},\n};"), "glue goes through the table up to its end"
    return arrays, [(name, array, lengths[length]) for name, array, length in table]


def test_files_are_those_of_the_folder_itself_sorted(folder: Path) -> None:
    library = folder / "library"
    (library / "deeper").mkdir()
    for name in ("b.py", "a.py", "deeper/c.py"):
        (library / name).write_text("")
    assert library_files(folder) == [library / "a.py", library / "b.py"]


def test_a_folder_without_a_library_has_no_files(tmp_path: Path) -> None:
    assert library_files(tmp_path) == []
    assert written(tmp_path) == ({}, [])


def test_every_file_is_there_to_the_byte(folder: Path) -> None:
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


def test_numbers_are_those_of_a_signed_char(folder: Path) -> None:
    (folder / "library" / "a.py").write_text("\u00ff")
    write_library(folder, folder)
    assert "-61, -65, 0," in (folder / HEADER).read_text()


@pytest.mark.parametrize("name", ["two-words.py", "1.py", "sch\u00f6n.py", "a.b.py"])
def test_a_name_that_is_none_of_c_is_refused(folder: Path, name: str) -> None:
    (folder / "library" / name).write_text("")
    with pytest.raises(BuildError, match="letters, digits and _ only"):
        write_library(folder, folder)


def test_what_is_not_utf8_is_refused(folder: Path) -> None:
    (folder / "library" / "a.py").write_bytes(b"\xff")
    with pytest.raises(BuildError, match=r"a\.py is not UTF-8"):
        write_library(folder, folder)
