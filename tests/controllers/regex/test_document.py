"""Every row of the tables of docs/regex.md holds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.controllers.regex.engine import Engine, Refused

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = (ROOT / "docs" / "regex.md").read_text()
LIMITS = (ROOT / "controllers" / "sdk" / "include" / "aici" / "regex" / "limits.hpp").read_text()


def table(heading: str) -> list[list[str]]:
    """The cells of the table with this first line, row by row."""
    rows = DOCUMENT.split(f"\n{heading}\n")[1].split("\n\n")[0].splitlines()[1:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]


def codes(cell: str) -> list[str]:
    return [code.replace(r"\|", "|") for code in re.findall(r"`([^`]*)`", cell)]


def texts(cell: str) -> list[str]:
    """A blank alone is the empty text; escapes are those of Python."""
    found = [code.encode("latin-1", "backslashreplace").decode("unicode_escape") for code in codes(cell)]
    return ["" if text == " " else text for text in found]


def patterns_of(cell: str) -> list[str]:
    """Returns the patterns, which precede their explanation."""
    return codes(re.match(r"(?:`[^`]*`(?:, )?)+", cell)[0])  # type: ignore[index]


SYNTAX = table("| expression | matches | does not match |")
FLAGS = [[row[0], row[2], row[3]] for row in table("| flag | meaning | matches | does not match |")]


@pytest.mark.parametrize(("patterns", "matching", "others"), [*SYNTAX, *FLAGS])
def test_syntax(engine: Engine, patterns: str, matching: str, others: str) -> None:
    for pattern in patterns_of(patterns):
        engine.compile(pattern)
        for text in texts(matching):
            assert engine.accepts(text), (pattern, text)
        for text in texts(others):
            assert not engine.accepts(text), (pattern, text)


def test_the_tables_are_read() -> None:
    assert len(SYNTAX) > 35
    assert len(FLAGS) == 6


@pytest.mark.parametrize("patterns", [row[0] for row in table("| expression | why, and what to write |")])
def test_unsupported_patterns_are_refused(engine: Engine, patterns: str) -> None:
    for pattern in codes(patterns):
        with pytest.raises(Refused) as caught:
            engine.compile(pattern)
        assert "no text matches" not in caught.value.message


@pytest.mark.parametrize(("pattern", "message"), table("| expression | message |"))
def test_messages(engine: Engine, pattern: str, message: str) -> None:
    with pytest.raises(Refused) as caught:
        engine.compile(codes(pattern)[0])
    assert caught.value.message == message


def test_limits(engine: Engine) -> None:
    documented = {codes(name)[0]: int(value) for name, value in table("| limit | value |")}
    declared = re.findall(r"std::uint32_t (\w+) = ([\d' *<]+);", LIMITS.partition("};")[0])
    assert documented == {name: eval(value.replace("'", "")) for name, value in declared}


def test_the_version_of_unicode(engine: Engine) -> None:
    assert f"Unicode is of version {engine.unicode_version()}." in DOCUMENT
