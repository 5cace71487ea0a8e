"""Writes grammars in KBNF."""

from __future__ import annotations

from tests.controllers.grammars.expressions import (
    Call,
    Expr,
    Grammar,
    Repeat,
    Sequence,
    Terminal,
    pattern,
)

_MARKS = {"regex": "#", "early": "#e", "without": "#ex"}


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
