"""Grammars as trees, independent of a syntax, and random grammars.

Terminals are regular expressions over characters; `Regex` has derivatives, so that no automaton is taken from
what is tested.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

# -- regular expressions ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Regex:
    """kind: `none`, `empty`, `set` (characters), `cat`, `alt`, `star`."""

    kind: str
    characters: frozenset[str] = frozenset()
    parts: tuple[Regex, ...] = ()


NONE, EMPTY = Regex("none"), Regex("empty")


def characters(text: str) -> Regex:
    return Regex("set", frozenset(text)) if text else NONE


def cat(*parts: Regex) -> Regex:
    kept = [part for part in parts if part != EMPTY]
    if NONE in kept:
        return NONE
    return kept[0] if len(kept) == 1 else Regex("cat", parts=tuple(kept)) if kept else EMPTY


def alt(*parts: Regex) -> Regex:
    flat = {p for part in parts for p in (part.parts if part.kind == "alt" else (part,)) if p != NONE}
    kept = sorted(flat, key=repr)
    return kept[0] if len(kept) == 1 else Regex("alt", parts=tuple(kept)) if kept else NONE


def star(part: Regex) -> Regex:
    return EMPTY if part in (NONE, EMPTY) else part if part.kind == "star" else Regex("star", parts=(part,))


def text(of: str) -> Regex:
    return cat(*(characters(c) for c in of))


@cache
def nullable(regex: Regex) -> bool:
    if regex.kind in ("alt", "cat"):
        return (any if regex.kind == "alt" else all)(nullable(part) for part in regex.parts)
    return regex.kind in ("empty", "star")


@cache
def derive(regex: Regex, c: str) -> Regex:
    """Returns the regex of the rests of the texts that begin with `c`."""
    if regex.kind == "set":
        return EMPTY if c in regex.characters else NONE
    if regex.kind == "alt":
        return alt(*(derive(part, c) for part in regex.parts))
    if regex.kind == "star":
        return cat(derive(regex.parts[0], c), regex)
    if regex.kind == "cat":
        first, rest = regex.parts[0], cat(*regex.parts[1:])
        here = cat(derive(first, c), rest)
        return alt(here, derive(rest, c)) if nullable(first) else here
    return NONE


def pattern(regex: Regex) -> str:
    """Returns the regex in the usual syntax. It must not be `none`."""
    if regex.kind == "set":
        return (
            f"[{''.join(sorted(regex.characters))}]" if len(regex.characters) > 1 else min(regex.characters)
        )
    if regex.kind == "star":
        return f"(?:{pattern(regex.parts[0])})*"
    if regex.kind == "alt":
        return f"(?:{'|'.join(pattern(part) for part in regex.parts)})"
    return "".join(pattern(part) for part in regex.parts)


# -- grammars ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Terminal:
    """`kind`: `text`, `regex`, `early` (ends where it first matches), `without` (no part matches) and `parts`
    (of a text). `early` and `without` have a character at least.
    """

    kind: str
    regex: Regex = EMPTY
    text: str = ""


@dataclass(frozen=True)
class Call:
    name: str


@dataclass(frozen=True)
class Sequence:
    parts: tuple[Expr, ...]


@dataclass(frozen=True)
class Choice:
    parts: tuple[Expr, ...]


@dataclass(frozen=True)
class Repeat:
    """A repetition; `most` None means any number."""

    part: Expr
    least: int
    most: int | None


Expr = Terminal | Call | Sequence | Choice | Repeat
Grammar = dict[str, Expr]


def sign(repeat: Repeat) -> str:
    """Returns the sign of a repetition in most syntaxes."""
    return {(0, 1): "?", (0, None): "*", (1, None): "+", (1, 1): ""}[repeat.least, repeat.most]


def written(expr: Expr, terminal: Callable[[Terminal], str], times: Callable[[Repeat], str] = sign) -> str:
    """Returns an expression in a syntax in which `terminal` and `times` write terminals and repetitions."""
    if isinstance(expr, Call):
        return expr.name
    if isinstance(expr, Terminal):
        return terminal(expr)
    if isinstance(expr, Repeat):
        return f"({written(expr.part, terminal, times)}){times(expr)}"
    between = " " if isinstance(expr, Sequence) else " | "
    return f"({between.join(written(part, terminal, times) for part in expr.parts)})"


def terminals_of(grammar: Grammar) -> set[Terminal]:
    """Returns the terminals of all rules."""

    def inside(expr: Expr) -> Iterator[Terminal]:
        if isinstance(expr, Terminal):
            yield expr
        elif not isinstance(expr, Call):
            for part in (expr.part,) if isinstance(expr, Repeat) else expr.parts:
                yield from inside(part)

    return {terminal for expr in grammar.values() for terminal in inside(expr)}


def literal(of: str) -> Terminal:
    return Terminal("text", text(of), of)


def random_regex(rng: random.Random, alphabet: str, depth: int = 2) -> Regex:
    if depth == 0 or rng.random() < 0.3:
        return characters("".join(rng.sample(alphabet, rng.randint(1, 2))))
    sort = rng.randrange(4)
    if sort == 0:
        return star(random_regex(rng, alphabet, depth - 1))
    parts = [random_regex(rng, alphabet, depth - 1) for _ in range(2)]
    return alt(*parts) if sort == 1 else cat(*parts)


def random_terminals(rng: random.Random, letters: str) -> list[Terminal]:
    """Returns texts and regular expressions over three letters."""
    texts = [literal(t) for t in rng.sample(["", "a", "b", "ab", "ba", "abc", "cc"], 4)]
    return [*texts, *(Terminal("regex", random_regex(rng, letters)) for _ in range(3))]


def random_expr(rng: random.Random, names: list[str], terminals: list[Terminal], depth: int) -> Expr:
    if depth == 0 or rng.random() < 0.2:
        return Call(rng.choice(names)) if names and rng.random() < 0.4 else rng.choice(terminals)
    sort = rng.random()
    inside = tuple(random_expr(rng, names, terminals, depth - 1) for _ in range(rng.randint(2, 3)))
    if sort < 0.45:
        return Sequence(inside)
    if sort < 0.75:
        return Choice(inside)
    least = rng.choice((0, 0, 1))
    return Repeat(inside[0], least, rng.choice((1, None, None)))


def random_grammar(
    rng: random.Random, start: str, terminals: list[Terminal], *, recursive: bool = True
) -> Grammar:
    names = [start, "x", "y"][: rng.randint(1, 3)]
    some = rng.sample(terminals, min(len(terminals), rng.randint(2, 4)))
    grammar: Grammar = {}
    for i, name in enumerate(names):
        called = names if recursive else names[i + 1 :]
        alternatives = (
            random_expr(rng, called, some, rng.randint(1, 3)),
            random_expr(rng, called, some, 1),
        )
        grammar[name] = Choice(alternatives)
    return grammar
