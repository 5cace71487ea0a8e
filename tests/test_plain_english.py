"""Docstrings and comments are in plain English, as far as a program can check."""

from __future__ import annotations

import pytest

from tests.plain_english import problems
from tests.structure import ROOT

#: folders and files without findings; add others when they have none
CLEAN = ("aicirt", "controllers", "harness", "lab", "pyaici", "tests")


@pytest.mark.parametrize("name", CLEAN)
def test_texts_have_no_findings(name: str) -> None:
    place = ROOT / name
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
    assert files
    found = [f"{path}:{line}: {what}" for path in files for line, what in problems(path.read_text())]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ('"""What it is."""', "begins with 'What'"),
        ('def f():\n    """Its own."""', "begins with 'Its'"),
        ("# the worker shall end", "says 'shall'"),
        (f'"""A sentence {"of many words " * 20}."""', "a sentence of"),
        ('"""Returns what it is."""\n# code: `whoever`', "says 'whoever'"),
    ],
)
def test_hard_text_is_found(source: str, says: str) -> None:
    ((_, what),) = problems(source)
    assert says in what


@pytest.mark.parametrize(
    "source",
    [
        '"""Returns a row. Raises ValueError."""',
        "class A:\n    @property\n    def b(self):\n        " + '"""Whether it is."""',
        '"""Starts it::\n\n    ' + "word " * 60 + '\n\nOnce."""',
    ],
)
def test_plain_text_has_no_findings(source: str) -> None:
    assert list(problems(source)) == []
