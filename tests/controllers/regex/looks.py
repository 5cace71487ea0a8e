"""Random patterns with look-arounds, in a syntax that the standard library and we have in common."""

from __future__ import annotations

import random

#: characters of the texts that are tried; the last one is not a word character
ALPHABET = "ab."
_CHARACTERS = ["a", "b", r"\.", "[ab]", "[^a]", r"\w", "(?s:.)"]
_ANCHORS = ["^", r"(?!(?s:.))", r"\b", r"\B"]
_COUNTS = ["*", "+", "?", "{2}", "{1,2}", "{0,3}"]


def random_look(rng: random.Random, depth: int) -> str:
    """A look-around whose body may have further ones, up to a depth."""
    if rng.random() < 0.5:
        return f"(?{rng.choice('=!')}{random_alternatives(rng, depth - 1)})"
    # the standard library wants a fixed number of characters
    return f"(?<{rng.choice('=!')}{_fixed(rng, rng.randrange(3), depth - 1)})"


def _fixed(rng: random.Random, width: int, depth: int) -> str:
    """A pattern for `width` characters."""
    if depth > 0 and rng.random() < 0.3:
        return f"(?:{_fixed(rng, width, 0)}|{_fixed(rng, width, depth - 1)})"
    parts = [rng.choice(_CHARACTERS) for _ in range(width)]
    if rng.random() < 0.4:
        parts.insert(rng.randint(0, width), rng.choice(_ANCHORS))
    if depth > 0:
        parts.insert(rng.randint(0, len(parts)), random_look(rng, depth))
    return "".join(parts)


def random_alternatives(rng: random.Random, depth: int) -> str:
    return "|".join(_sequence(rng, depth) for _ in range(rng.choice([1, 1, 2])))


def _sequence(rng: random.Random, depth: int) -> str:
    return "".join(_part(rng, depth) for _ in range(rng.randint(0, 4)))


def _part(rng: random.Random, depth: int) -> str:
    kind = rng.random()
    if depth > 0 and kind < 0.3:
        return random_look(rng, depth)
    if depth > 0 and kind < 0.5:
        return f"(?:{random_alternatives(rng, depth - 1)}){rng.choice(['', *_COUNTS])}"
    if kind < 0.6:
        return rng.choice(_ANCHORS)
    return rng.choice(_CHARACTERS) + rng.choice(["", "", *_COUNTS])
