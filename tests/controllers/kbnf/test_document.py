"""Examples of docs/grammars.md for KBNF."""

from __future__ import annotations

from collections.abc import Callable

from lab.oracles.grammars.walk import Controller
from tests.controllers.grammars.document import PAGE, examples

Make = Callable[[str], Controller]


def test_the_examples(grammar: Make) -> None:
    for text, good, bad in examples("kbnf"):
        made = grammar(text)
        assert made.log() == "" and len(good) >= 3 and len(bad) >= 3
        assert [t for t in good if not made.accepts(t)] == []
        assert [t for t in bad if made.accepts(t)] == []


def test_the_warning(grammar: Make) -> None:
    shown = "warning: line 2, column 1: the rule spare is not used"
    assert f"`{shown}`" in PAGE
    assert grammar("start ::= 'a';\nspare ::= 'b';").log() == shown + "\n"
