"""Random patterns for differential tests, each in our syntax and in that of the package to compare with."""

from __future__ import annotations

import random
from dataclasses import dataclass

from hypothesis import strategies as st

#: characters of the texts that are tried: letters with unusual case partners, blanks, all UTF-8 lengths
ALPHABET = "abK\u212aß1_ \n-é😀"
#: belongs to \w for Unicode and for us, but not for the standard library
MARK = "\u0301"


@dataclass(frozen=True)
class Pattern:
    ours: str
    theirs: str

    def within(self, before: str, after: str) -> Pattern:
        return Pattern(before + self.ours + after, before + self.theirs + after)


def same(text: str) -> Pattern:
    return Pattern(text, text)


_ESCAPED = {" ": r"\ ", "\n": r"\n", "-": r"\-"}
_PERL = [r"\w", r"\W", r"\d", r"\s", r"\S", "."]
_PROPERTIES = [r"\pL", r"\p{Lu}", r"\P{M}", r"\p{Greek}", r"\p{L}"]
_CLASS_ITEMS = ["a", "b", "k", "K", "s", "é", "😀", r"\n", " ", r"\w", r"\d", r"\S", "a-c", "A-Z", "à-ÿ", "-"]
_CLASS_PROPERTIES = [r"\p{Greek}", r"\pL", r"\P{Lu}"]
_ANCHORS = [
    same("^"),
    Pattern("(?-m:$)", r"\Z"),
    same(r"\A"),
    Pattern(r"\z", r"\Z"),
    same(r"\b"),
    same(r"\B"),
    same("(?m:^)"),
    same("(?m:$)"),
]
_COUNTS = ["*", "+", "?", "*?", "+?", "??", "{2}", "{0}", "{1,}", "{0,2}", "{2,3}", "{1,2}?"]
_OF_GROUPS = ["", "", "*", "+", "?", "{0,2}", "{2}"]
_MAX_NESTED = 2


@dataclass
class _Source:
    """A source of parts of patterns."""

    rng: random.Random
    anchors: bool
    properties: bool

    def alternatives(self, depth: int) -> Pattern:
        found = [self.sequence(depth) for _ in range(self.rng.randint(1, 3))]
        return Pattern("|".join(p.ours for p in found), "|".join(p.theirs for p in found))

    def sequence(self, depth: int) -> Pattern:
        found = [self.part(depth) for _ in range(self.rng.randint(0, 4))]
        return Pattern("".join(p.ours for p in found), "".join(p.theirs for p in found))

    def part(self, depth: int) -> Pattern:
        rng = self.rng
        if depth > 0 and rng.random() < 0.3:
            heads = ["", "?:"] if self.properties else ["", "?:", "?i:", "?s:", "?-i:", "?is:", "?m:"]
            return self.alternatives(depth - 1).within(f"({rng.choice(heads)}", ")" + rng.choice(_OF_GROUPS))
        kind = rng.randrange(3 if self.anchors else 2)
        if kind == 2:
            return rng.choice(_ANCHORS)
        count = rng.choice(_COUNTS) if kind else ""
        character = self.character()
        # what is lazy matters to no whole match, but the package `regex` (2026.11.15) then reports wrong
        # partial matches: `x0` with x{1,2}?y
        lazy = self.properties and len(count) > 1 and count.endswith("?")
        return Pattern(character.ours + count, character.theirs + (count[:-1] if lazy else count))

    def character(self) -> Pattern:
        rng = self.rng
        kind = rng.randrange(5 if self.properties else 4)
        if kind < 2:
            character = rng.choice(ALPHABET)
            return same(_ESCAPED.get(character, character))
        return self.one_of() if kind == 3 else same(rng.choice(_PERL if kind == 2 else _PROPERTIES))

    def one_of(self) -> Pattern:
        rng = self.rng
        items = rng.sample(_CLASS_ITEMS + (_CLASS_PROPERTIES if self.properties else []), rng.randint(1, 3))
        items.sort(key=lambda item: item != "-")  # a hyphen comes first
        negation = rng.choice(["", "^"])
        if negation and r"\P{Lu}" in items:
            # as an alternative to a single character the package `regex` (2026.11.15) loses letters of such a
            # class: (?i)[^a\P{Lu}] matches "b", (?i)(a|[^a\P{Lu}]) does not; Rust's regex takes both, as ours
            items = [r"\P{Lu}"]
        # set operators are tested apart: the two dialects bind them differently
        return same(f"[{negation}{''.join(items)}]")


def random_pattern(
    rng: random.Random, *, with_anchors: bool = False, with_properties: bool = False
) -> Pattern:
    """Without properties for the standard library's `re`, which does not know them; with them for the package
    `regex`, where flags of a group may leak out of it, so groups have none then.
    """
    whole = _Source(rng, with_anchors, with_properties).alternatives(_MAX_NESTED)
    return whole.within(rng.choice(["", "", "(?i)", "(?s)", "(?im)"]), "")


def patterns(*, with_anchors: bool = False, with_properties: bool = False) -> st.SearchStrategy[Pattern]:
    """Returns `random_pattern` as a strategy."""
    return st.randoms(use_true_random=False).map(
        lambda rng: random_pattern(rng, with_anchors=with_anchors, with_properties=with_properties)
    )
