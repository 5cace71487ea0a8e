"""Properties of grammars that other engines do not support."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lab.oracles.grammars.expressions import (
    NONE,
    Call,
    Choice,
    Expr,
    Grammar,
    Repeat,
    Sequence,
    Terminal,
    nullable,
)


def _least(grammar: Grammar, holds: Callable[[Expr, set[str]], bool]) -> set[str]:
    """Returns the smallest set of names that contains the name of each body that satisfies the test."""
    found: set[str] = set()
    while more := {name for name, body in grammar.items() if name not in found and holds(body, found)}:
        found |= more
    return found


def _is_empty(expr: Expr, names: set[str]) -> bool:
    """Returns whether the expression matches the empty text."""
    if isinstance(expr, Call):
        return expr.name in names
    if isinstance(expr, Terminal):
        return expr.kind == "parts" or (expr.kind in ("text", "regex") and nullable(expr.regex))
    if isinstance(expr, Repeat):
        return expr.least == 0 or _is_empty(expr.part, names)
    return (all if isinstance(expr, Sequence) else any)(_is_empty(part, names) for part in expr.parts)


def _has_text(expr: Expr, names: set[str]) -> bool:
    if isinstance(expr, Call):
        return expr.name in names
    if isinstance(expr, Terminal):
        return expr.regex != NONE
    if isinstance(expr, Repeat):
        return expr.least == 0 or _has_text(expr.part, names)
    return (all if isinstance(expr, Sequence) else any)(_has_text(part, names) for part in expr.parts)


def every_rule_has_a_text(grammar: Grammar) -> bool:
    return _least(grammar, _has_text) == set(grammar)


def _parts(expr: Expr) -> tuple[Expr, ...]:
    if isinstance(expr, Sequence | Choice):
        return expr.parts
    return (expr.part,) if isinstance(expr, Repeat) else ()


def _alone(expr: Expr, empty: set[str]) -> Iterator[str]:
    """Returns the names to which the expression may reduce."""
    if isinstance(expr, Call):
        yield expr.name
    elif isinstance(expr, Repeat):
        yield from _alone(expr.part, empty)
    elif isinstance(expr, Choice):
        for part in expr.parts:
            yield from _alone(part, empty)
    elif isinstance(expr, Sequence):
        for i, part in enumerate(expr.parts):
            if all(_is_empty(other, empty) for j, other in enumerate(expr.parts) if j != i):
                yield from _alone(part, empty)


def _reaches_itself(edges: dict[str, set[str]]) -> bool:
    for name in edges:
        seen, todo = set[str](), list(edges[name])
        while todo:
            if (next_ := todo.pop()) not in seen:
                seen.add(next_)
                todo += edges[next_]
        if name in seen:
            return True
    return False


def _calls(expr: Expr) -> Iterator[str]:
    if isinstance(expr, Call):
        yield expr.name
    for part in _parts(expr):
        yield from _calls(part)


def is_recursive(grammar: Grammar) -> bool:
    return _reaches_itself({name: set(_calls(body)) for name, body in grammar.items()})


def is_cyclic(grammar: Grammar) -> bool:
    """Returns whether a rule may reduce to itself."""
    empty = _least(grammar, _is_empty)
    return _reaches_itself({name: set(_alone(body, empty)) for name, body in grammar.items()})


def _first(expr: Expr, empty: set[str]) -> Iterator[str]:
    """Returns the names with which its texts may begin."""
    if isinstance(expr, Call):
        yield expr.name
    for part in _parts(expr):
        yield from _first(part, empty)
        if isinstance(expr, Sequence) and not _is_empty(part, empty):
            return


def is_left_recursive(grammar: Grammar) -> bool:
    empty = _least(grammar, _is_empty)
    return _reaches_itself({name: set(_first(body, empty)) for name, body in grammar.items()})
