"""Writes grammars in KBNF, and makes terminals of all its kinds."""

from __future__ import annotations

import random

from lab.oracles.grammars.expressions import (
    Call,
    Expr,
    Grammar,
    Repeat,
    Sequence,
    Terminal,
    derive,
    nullable,
    pattern,
    random_regex,
    random_terminals,
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
    return "\n".join(f"{name} ::= {_expr(expr)};" for name, expr in grammar.items())


def _expr(expr: Expr) -> str:
    if isinstance(expr, Call):
        return expr.name
    if isinstance(expr, Terminal):
        if expr.kind in _MARKS:
            return f"{_MARKS[expr.kind]}'{pattern(expr.regex)}'"
        return f"#substrs'{expr.text}'" if expr.kind == "parts" else f"'{expr.text}'"
    if isinstance(expr, Repeat):
        sign = {(0, 1): "?", (0, None): "*", (1, None): "+", (1, 1): ""}[expr.least, expr.most]
        return f"({_expr(expr.part)}){sign}"
    between = " " if isinstance(expr, Sequence) else " | "
    return f"({between.join(_expr(part) for part in expr.parts)})"
