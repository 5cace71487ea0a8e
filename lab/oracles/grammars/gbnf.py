"""Writes grammars in GBNF. GBNF has no regular expressions, so they become groups of characters."""

from __future__ import annotations

from lab.oracles.grammars.expressions import Call, Expr, Grammar, Regex, Repeat, Sequence, Terminal


def gbnf(grammar: Grammar) -> str:
    return "\n".join(f"{name} ::= {_expr(expr)}" for name, expr in grammar.items())


def _expr(expr: Expr) -> str:
    if isinstance(expr, Call):
        return expr.name
    if isinstance(expr, Terminal):
        return f'"{expr.text}"' if expr.kind == "text" else _regex(expr.regex)
    if isinstance(expr, Repeat):
        most = "" if expr.most is None else expr.most
        return f"({_expr(expr.part)}){{{expr.least},{most}}}"
    between = " " if isinstance(expr, Sequence) else " | "
    return f"({between.join(_expr(part) for part in expr.parts)})"


def _regex(regex: Regex) -> str:
    if regex.kind == "set":
        return f"[{''.join(sorted(regex.characters))}]"
    if regex.kind == "star":
        return f"({_regex(regex.parts[0])})*"
    if regex.kind == "alt":
        return f"({' | '.join(_regex(part) for part in regex.parts)})"
    return f"({' '.join(_regex(part) for part in regex.parts)})" if regex.parts else '""'
