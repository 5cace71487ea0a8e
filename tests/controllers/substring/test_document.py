"""The text in docs/grammars.md has the documented parts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.oracles.substring import EOS
from tests.controllers.substring.conftest import Substring

PAGE = (Path(__file__).parents[3] / "docs" / "grammars.md").read_text().partition("\n## Substrings\n")[2]

Make = Callable[[str | bytes], Substring]


def row(name: str) -> list[str]:
    """The texts in a row of the table below the argument."""
    (line,) = re.findall(rf"^\| {name} \| (`.*new line.*) \|$", PAGE, re.MULTILINE)
    texts = line.replace("` and a new line", "\n`").replace("a new line alone", "`\n`")
    return [text.strip("`") for text in texts.split(", ")]


def accepts(made: Substring, text: str) -> bool:
    try:
        return EOS in made.masks(text.encode())[-1]
    except AssertionError:
        return False


def test_parts_of_the_documented_text(substring: Make) -> None:
    (argument,) = re.findall(r"```json\n(.*?)\n```", PAGE, re.DOTALL)
    made = substring(argument)
    assert len(row("accepted")) == 3 and all(accepts(made, text) for text in row("accepted"))
    assert len(row("rejected")) == 4 and not any(accepts(made, text) for text in row("rejected"))


def test_markers_behave_as_documented(substring: Make) -> None:
    made = substring(json.dumps({"text": "one, two", "end": ", "}))
    assert accepts(made, "one, ") and accepts(made, "two, ")
    with pytest.raises(AssertionError):
        made.masks(b"one, t")
