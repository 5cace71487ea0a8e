"""The texts of a grammar with longest-match lexemes, by definition.

Where a lexeme begins, the terminals that the parser could take there are read at the same time, byte by byte,
until none of them can go on. The lexeme ends where one of them matched last: all that match there are what it
may be. If none did, the text is none.
"""

from __future__ import annotations

from collections.abc import Iterator

from lab.oracles.grammars.expressions import (
    NONE,
    Call,
    Choice,
    Expr,
    Grammar,
    Regex,
    Repeat,
    Sequence,
    Terminal,
    derive,
    nullable,
)

#: characters by which the rest of a rule may exceed the text: its first terminal competes all the same
_BEYOND = 6
#: remaining symbols, the next one first; an item waits for its first terminal
_Stack = tuple[Expr, ...]


def _closure(grammar: Grammar, stacks: set[_Stack], longest: int) -> set[_Stack]:
    """Expands the front of each stack until it is a terminal or the stack is empty.

    Stacks that need more than `longest` characters are dropped, so left recursion comes to an end.
    """
    found, todo = set(stacks), list(stacks)
    while todo:
        stack = todo.pop()
        for next_ in _expand(grammar, stack):
            if next_ not in found and sum(_needs(part) for part in next_) <= longest and len(next_) < 12:
                found.add(next_)
                todo.append(next_)
    return {stack for stack in found if not stack or isinstance(stack[0], Terminal)}


def _needs(expr: Expr) -> int:
    return int(isinstance(expr, Terminal) and not nullable(expr.regex))


def _expand(grammar: Grammar, stack: _Stack) -> Iterator[_Stack]:
    if not stack:
        return
    front, rest = stack[0], stack[1:]
    if isinstance(front, Call):
        yield (grammar[front.name], *rest)
    elif isinstance(front, Choice):
        for part in front.parts:
            yield (part, *rest)
    elif isinstance(front, Sequence):
        yield (*front.parts, *rest)
    elif isinstance(front, Repeat):
        if front.least == 0:
            yield rest
        if front.most is None:
            yield (front.part, Repeat(front.part, 0, None), *rest)
        else:
            yield (front.part, *rest)
    elif nullable(front.regex):
        yield rest


def accepts(grammar: Grammar, start: str, text: str) -> bool:
    """Returns whether the text is complete. Only for short texts of grammars with low stacks."""
    stacks = _closure(grammar, {(Call(start),)}, len(text) + _BEYOND)
    at = 0
    while at < len(text):
        possible: dict[Terminal, Regex] = {
            s[0]: s[0].regex for s in stacks if s and isinstance(s[0], Terminal)
        }
        ended: set[Terminal] = set()
        for end, character in enumerate(text[at:], at + 1):
            possible = {t: d for t, r in possible.items() if (d := derive(r, character)) != NONE}
            if complete := {t for t, r in possible.items() if nullable(r)}:
                ended, at = complete, end
        if not ended:
            return False
        stacks = {s[1:] for s in stacks if s and s[0] in ended}
        stacks = _closure(grammar, stacks, len(text) - at + _BEYOND)
    return () in stacks
