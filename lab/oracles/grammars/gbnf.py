"""Writes grammars in GBNF. GBNF has no regular expressions, so they become groups of characters."""

from __future__ import annotations

from lab.oracles.grammars.expressions import Grammar, Regex, Repeat, Terminal, written


def gbnf(grammar: Grammar) -> str:
    return "\n".join(f"{name} ::= {written(expr, _terminal, _times)}" for name, expr in grammar.items())


def _terminal(terminal: Terminal) -> str:
    return f'"{terminal.text}"' if terminal.kind == "text" else _regex(terminal.regex)


def _times(repeat: Repeat) -> str:
    return f"{{{repeat.least},{'' if repeat.most is None else repeat.most}}}"


def _regex(regex: Regex) -> str:
    if regex.kind == "set":
        return f"[{''.join(sorted(regex.characters))}]"
    if regex.kind == "star":
        return f"({_regex(regex.parts[0])})*"
    if regex.kind == "alt":
        return f"({' | '.join(_regex(part) for part in regex.parts)})"
    return f"({' '.join(_regex(part) for part in regex.parts)})" if regex.parts else '""'
