"""docs/grammars.md is true: its grammar has the texts that it says, and the warning that it shows."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from tests.controllers.lr1.conftest import Grammar

PAGE = (Path(__file__).parents[3] / "docs" / "grammars.md").read_text()


def row(name: str) -> list[str]:
    """The texts in a row of the table below the grammar."""
    (line,) = re.findall(rf"^\| {name} \| (.*) \|$", PAGE, re.MULTILINE)
    return [text.strip("`") for text in re.sub(r"` and a new line and `", "\n", line).split(", ")]


def test_the_texts_of_the_first_grammar(grammar: Callable[[str], Grammar]) -> None:
    (text,) = re.findall(r"```yacc\n(.*?)```", PAGE, re.DOTALL)
    made = grammar(text)
    assert made.log() == ""
    assert len(row("texts")) == 3 and all(made.accepts(t) for t in row("texts"))
    assert len(row("no texts")) == 3 and not any(made.accepts(t) for t in row("no texts"))


def test_the_warning(grammar: Callable[[str], Grammar]) -> None:
    (shown,) = re.findall(r"```\n(warning: .*?)```", PAGE, re.DOTALL)
    statement = """%% statement: "if" condition statement | "if" condition statement "else" statement | "x" ;
    condition: "(" condition ")" | "c" ;"""
    assert grammar(statement).log() == shown


def test_lexemes_are_as_it_says(grammar: Callable[[str], Grammar]) -> None:
    lexemes = r"""NAME: "/[a-z]+/" ; NUMBER: "/[0-9]+(\.[0-9]+)?/" ; SKIP: "/ +/" ;"""
    made = grammar('%% a: "if" | NAME "!" | NUMBER ".." NUMBER ; ' + lexemes)
    assert made.accepts("if") and made.accepts("iffy!") and not made.accepts("if!")
    assert made.accepts("1 ..2") and not made.accepts("1..2")
