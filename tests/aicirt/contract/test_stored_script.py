"""Scripts as they are kept: what is one, by what it is found, and what its interpreter gets."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicirt.contract.errors import ArgumentError, ModuleError
from aicirt.contract.modules import MAX_NAME, MAX_SOURCE, StoredScript, script_value

SCRIPT = StoredScript("a1" * 32, "python", "story.py", "x = 'é'\n")
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("interpreter", "pyctrl", "id of a module"),
        ("interpreter", "A1" * 32, "id of a module"),
        ("interpreter", 7, "has texts"),
        ("language", "", "word of small letters"),
        ("language", "Python", "word of small letters"),
        ("name", "", "the name of a script"),
        ("name", "a\nb", "the name of a script"),
        ("name", "a" * (MAX_NAME + 1), "the name of a script"),
        ("name", "\ud800", "the name of a script"),
        ("name", None, "the name of a script"),
        ("source", "", "is empty"),
        ("source", "\udfff", "surrogate"),
        ("source", b"x", "has texts"),
        ("source", "é" * (MAX_SOURCE // 2 + 1), f"{MAX_SOURCE + 2} bytes"),
    ],
)
def test_what_is_no_script(field: str, value: Any, message: str) -> None:
    SCRIPT.check()
    with pytest.raises(ModuleError, match=message):
        replace(SCRIPT, **{field: value}).check()


def test_the_longest_script_is_one() -> None:
    replace(SCRIPT, name="a" * MAX_NAME, source="é" * (MAX_SOURCE // 2)).check()


@given(TEXT.filter(lambda text: text.isprintable() and text), TEXT.filter(bool))
def test_files_are_read_as_they_were_written(name: str, source: str) -> None:
    script = replace(SCRIPT, name=name, source=source)
    assert StoredScript.unpack(script.pack()) == script


def test_each_part_counts_for_the_id() -> None:
    others = [replace(SCRIPT, **{field.name: "b2" * 32}).id for field in fields(StoredScript)]
    assert len({SCRIPT.id, *others}) == 5
    assert replace(SCRIPT).id == SCRIPT.id


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"\xff", b"[]", b"7", b'{"source": "x"}', b"[" * 100_000),
        *(replace(SCRIPT, **change).pack() for change in ({"source": ""}, {"interpreter": "../x"})),
        json.dumps({**asdict(SCRIPT), "source": "\ud800"}).encode(),
        json.dumps({**asdict(SCRIPT), "name": "\ud800"}).encode(),
        json.dumps({**asdict(SCRIPT), "name": 7}).encode(),
    ],
)
def test_what_is_no_file_of_one(data: bytes) -> None:
    with pytest.raises(ModuleError):
        StoredScript.unpack(data)


@pytest.mark.parametrize(
    ("arg", "value"),
    [
        (b"", None),
        (b'{"words": [1, "\\u00e9"]}', {"words": [1, "é"]}),
        (b"7", 7),
        (b"null", None),
        (b'"7"', "7"),
        ("wörter".encode(), "wörter"),
        (b"{", "{"),
        (b"NaN", "NaN"),
        (b"[-Infinity]", "[-Infinity]"),
        (b"1e999", "1e999"),
        (b"[1.5, -1e999]", "[1.5, -1e999]"),
        (b"1.5e3", 1500.0),
        (b"[" * 100_000, "[" * 100_000),
    ],
)
def test_what_the_interpreter_gets(arg: bytes, value: Any) -> None:
    assert json.loads(SCRIPT.argument(arg)) == {"script": SCRIPT.source, "name": "story.py", "arg": value}


def test_what_is_no_argument() -> None:
    with pytest.raises(ArgumentError, match="UTF-8"):
        SCRIPT.argument(b"\xff")


def test_no_depth_is_a_defect() -> None:
    """What can be read may be too deep to be written."""
    for depth in range(100, 2000, 20):
        with contextlib.suppress(ArgumentError):
            SCRIPT.argument(b"[" * depth + b"]" * depth)


def test_no_argument_is_no_value() -> None:
    assert script_value(None) is None and script_value("") == ""
