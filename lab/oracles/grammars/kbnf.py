"""Writes grammars in KBNF, and makes terminals of all its kinds."""

from __future__ import annotations

import random

from lab.oracles.grammars.expressions import (
    Grammar,
    Terminal,
    derive,
    nullable,
    pattern,
    random_regex,
    random_terminals,
    written,
)

_MARKS = {"regex": "#", "early": "#e", "without": "#ex"}


def kbnf_terminals(rng: random.Random, letters: str) -> list[Terminal]:
    """Returns texts, regular expressions, and the kinds of terminals that only KBNF has."""
    early = Terminal("early", random_regex(rng, letters))
    without = random_regex(rng, letters)
    while all(nullable(derive(without, letter)) for letter in letters):
        without = random_regex(rng, letters)  # only texts of other letters would be left
    more = [early, Terminal("without", without), Terminal("parts", text="abca")]
    return [*random_terminals(rng, letters)[:-1], *more]


def kbnf(grammar: Grammar) -> str:
    return "\n".join(f"{name} ::= {written(expr, _terminal)};" for name, expr in grammar.items())


def _terminal(terminal: Terminal) -> str:
    if terminal.kind in _MARKS:
        return f"{_MARKS[terminal.kind]}'{pattern(terminal.regex)}'"
    return f"#substrs'{terminal.text}'" if terminal.kind == "parts" else f"'{terminal.text}'"
