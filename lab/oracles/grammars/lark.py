"""Writes grammars in the dialect of Lark."""

from __future__ import annotations

from lab.oracles.grammars.expressions import (
    Call,
    Expr,
    Grammar,
    Repeat,
    Sequence,
    Terminal,
    pattern,
)


def lark(grammar: Grammar) -> str:
    return "\n".join(f"{name}: {_expr(expr)}" for name, expr in grammar.items())


def _expr(expr: Expr) -> str:
    if isinstance(expr, Call):
        return expr.name
    if isinstance(expr, Terminal):
        return f'"{expr.text}"' if expr.kind == "text" else f"/{pattern(expr.regex)}/"
    if isinstance(expr, Repeat):
        sign = {(0, 1): "?", (0, None): "*", (1, None): "+", (1, 1): ""}[expr.least, expr.most]
        return f"({_expr(expr.part)}){sign}"
    between = " " if isinstance(expr, Sequence) else " | "
    return f"({between.join(_expr(part) for part in expr.parts)})"
