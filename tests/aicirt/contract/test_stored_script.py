"""Stored scripts: validation, ids, the file format, and the argument of the interpreter."""

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
        ("interpreter", 7, "must be texts"),
        ("language", "", "letters from a to z"),
        ("language", "Python", "letters from a to z"),
        ("name", "", "the name of a script"),
        ("name", "a\nb", "the name of a script"),
        ("name", "a" * (MAX_NAME + 1), "the name of a script"),
        ("name", "\ud800", "the name of a script"),
        ("name", None, "the name of a script"),
        ("source", "", "is empty"),
        ("source", "\udfff", "surrogate"),
        ("source", b"x", "must be texts"),
        ("source", "é" * (MAX_SOURCE // 2 + 1), f"{MAX_SOURCE + 2} bytes"),
    ],
)
def test_invalid_scripts_are_refused(field: str, value: Any, message: str) -> None:
    SCRIPT.check()
    with pytest.raises(ModuleError, match=message):
        replace(SCRIPT, **{field: value}).check()


def test_longest_name_and_source_are_accepted() -> None:
    replace(SCRIPT, name="a" * MAX_NAME, source="é" * (MAX_SOURCE // 2)).check()


@given(TEXT.filter(lambda text: text.isprintable() and text), TEXT.filter(bool))
def test_pack_and_unpack_round_trip(name: str, source: str) -> None:
    script = replace(SCRIPT, name=name, source=source)
    assert StoredScript.unpack(script.pack()) == script


def test_id_depends_on_every_field() -> None:
    others = [replace(SCRIPT, **{field.name: "b2" * 32}).id for field in fields(StoredScript)]
    assert len({SCRIPT.id, *others}) == 5
    assert replace(SCRIPT).id == SCRIPT.id


@pytest.mark.usefixtures("no_collection")
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
def test_invalid_script_files_are_refused(data: bytes) -> None:
    with pytest.raises(ModuleError):
        StoredScript.unpack(data)


@pytest.mark.usefixtures("no_collection")
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
def test_argument_for_the_interpreter(arg: bytes, value: Any) -> None:
    assert json.loads(SCRIPT.argument(arg)) == {"script": SCRIPT.source, "name": "story.py", "arg": value}


def test_argument_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(ArgumentError, match="UTF-8"):
        SCRIPT.argument(b"\xff")


@pytest.mark.usefixtures("no_collection")
def test_argument_of_any_depth_is_passed_or_refused() -> None:
    """Values that can be parsed may be too deep to be written."""
    passed = []
    for depth in range(100, 2000, 20):
        text = "[" * depth + "]" * depth
        with contextlib.suppress(ArgumentError):
            argument = SCRIPT.argument(text.encode()).decode()
            assert argument.endswith((f'"arg": {text}}}', f'"arg": "{text}"}}')), depth
            passed.append(depth)
    assert passed[0] == 100


def test_missing_argument_is_none_and_empty_argument_is_empty() -> None:
    assert script_value(None) is None and script_value("") == ""
