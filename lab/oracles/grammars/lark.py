"""Writes grammars in the dialect of Lark."""

from __future__ import annotations

from lab.oracles.grammars.expressions import Grammar, Terminal, pattern, written


def lark(grammar: Grammar) -> str:
    return "\n".join(f"{name}: {written(expr, _terminal)}" for name, expr in grammar.items())


def _terminal(terminal: Terminal) -> str:
    return f'"{terminal.text}"' if terminal.kind == "text" else f"/{pattern(terminal.regex)}/"
