"""Examples of docs/grammars.md for GBNF."""

from __future__ import annotations

from collections.abc import Callable

from lab.oracles.grammars.walk import Controller
from tests.controllers.grammars.document import examples


def test_the_examples(grammar: Callable[[str], Controller]) -> None:
    for text, good, bad in examples("gbnf"):
        made = grammar(text)
        assert made.log() == "" and len(good) >= 3 and len(bad) >= 3
        assert [t for t in good if not made.accepts(t)] == []
        assert [t for t in bad if made.accepts(t)] == []
