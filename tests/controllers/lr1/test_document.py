"""The grammar in docs/grammars.md has the documented texts and warning."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from tests.controllers.lr1.conftest import Grammar

PAGE = (Path(__file__).parents[3] / "docs" / "grammars.md").read_text()


def row(name: str) -> list[str]:
    """The texts in a row of the table below the grammar."""
    line = re.findall(rf"^\| {name} \| (`.*) \|$", PAGE, re.MULTILINE)[0]
    return [text.strip("`") for text in re.sub(r"` and a new line and `", "\n", line).split(", ")]


def test_texts_of_the_documented_grammar(grammar: Callable[[str], Grammar]) -> None:
    (text,) = re.findall(r"```yacc\n(.*?)```", PAGE, re.DOTALL)
    made = grammar(text)
    assert made.log() == ""
    assert len(row("accepted")) == 3 and all(made.accepts(t) for t in row("accepted"))
    assert len(row("rejected")) == 3 and not any(made.accepts(t) for t in row("rejected"))


def test_the_warning(grammar: Callable[[str], Grammar]) -> None:
    (shown,) = re.findall(r"```\n(warning: .*?)```", PAGE, re.DOTALL)
    statement = """%% statement: "if" condition statement | "if" condition statement "else" statement | "x" ;
    condition: "(" condition ")" | "c" ;"""
    assert grammar(statement).log() == shown


def test_lexemes_behave_as_documented(grammar: Callable[[str], Grammar]) -> None:
    lexemes = r"""NAME: "/[a-z]+/" ; NUMBER: "/[0-9]+(\.[0-9]+)?/" ; SKIP: "/ +/" ;"""
    made = grammar('%% a: "if" | NAME "!" | NUMBER ".." NUMBER ; ' + lexemes)
    assert made.accepts("if") and made.accepts("iffy!") and not made.accepts("if!")
    assert made.accepts("1 ..2") and made.accepts("1..2") and made.accepts("1.5..2")
