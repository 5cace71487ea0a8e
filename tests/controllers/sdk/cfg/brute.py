"""Random grammars over `a` and `b` with their short texts, found by brute force."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import strategies as st

from . import engine as e

#: texts up to so many bytes are compared
LONGEST = 5
WORDS = ["".join(word) for size in range(LONGEST + 1) for word in itertools.product("ab", repeat=size)]

Texts = frozenset[str]
PATTERNS = ("a*", "[ab]+b", "a?b?", "(ab)*", "b+", "ab|a", "[ab]", "a{2,3}")


@dataclass(frozen=True)
class Part:
    """An expression for the engine, and its short texts if those of the rules are known."""

    expr: e.Expr
    texts: Callable[[list[Texts]], Texts]


def fixed(expr: e.Expr, texts: Texts) -> Part:
    return Part(expr, lambda _: texts)


def matching(pattern: str) -> Texts:
    return frozenset(word for word in WORDS if re.fullmatch(pattern, word))


def matching_early(pattern: str) -> Texts:
    found = matching(pattern) - {""}
    return frozenset(t for t in found if not any(t[:i] in found for i in range(1, len(t))))


def substrings(text: str) -> Texts:
    return frozenset(text[i:j] for i in range(len(text) + 1) for j in range(i, len(text) + 1)) & frozenset(
        WORDS
    )


def joined(left: Texts, right: Texts) -> Texts:
    return frozenset(a + b for a in left for b in right if len(a) + len(b) <= LONGEST)


def terminals() -> st.SearchStrategy[Part]:
    return st.one_of(
        st.sampled_from([fixed(e.lit(t), frozenset([t])) for t in ("a", "b", "ab", "")]),
        st.sampled_from([fixed(e.regex(p), matching(p)) for p in PATTERNS]),
        st.sampled_from([fixed(e.early(p), matching_early(p)) for p in PATTERNS]),
        st.just(fixed(e.substring("aabab"), substrings("aabab"))),
        st.just(fixed(e.but("[ab]+", "a", "ab"), matching("[ab]+") - {"a", "ab"})),
        st.just(fixed(e.but("a?b", "b"), frozenset(["ab"]))),
    )


def calls(rules: int, first: int) -> st.SearchStrategy[Part]:
    def one(rule: int) -> Part:
        return Part(e.call(first + rule), lambda known: known[rule])

    return st.integers(0, rules - 1).map(one)


def sequence(parts: list[Part]) -> Part:
    def texts(known: list[Texts]) -> Texts:
        made: Texts = frozenset([""])
        for part in parts:
            made = joined(made, part.texts(known))
        return made

    return Part(e.sequence(*(part.expr for part in parts)), texts)


def choice(parts: list[Part]) -> Part:
    def texts(known: list[Texts]) -> Texts:
        return frozenset[str]().union(*(part.texts(known) for part in parts))

    return Part(e.choice(*(part.expr for part in parts)), texts)


def repeated(part: Part, least: int, more: int | None) -> Part:
    def texts(known: list[Texts]) -> Texts:
        one = part.texts(known)
        now: Texts = frozenset([""])
        for _ in range(least):
            now = joined(now, one)
        found = now
        for _ in range(LONGEST if more is None else more):
            now = joined(now, one)
            found |= now
        return found

    return Part(e.repeat(part.expr, least, None if more is None else least + more), texts)


def may_follow(one: e.Member, written: list[e.Member], members: list[e.Member]) -> bool:
    """Returns whether a member may follow those in `written` where required ones come in their order."""
    missing = [number for number, other in enumerate(members) if other.required and other not in written]
    if not missing:
        return True
    skipped = members[members.index(one) : missing[0]]
    return members.index(one) <= missing[0] and not any(other.required for other in skipped)


def in_any_order(
    members: list[e.Member], least: int, most: int | None, once: bool, ordered: bool, first: int
) -> Part:
    def texts(known: list[Texts]) -> Texts:
        found: set[str] = set()
        left = [("", list[e.Member]())]
        while left:
            text, written = left.pop()
            repeated = sum(one.repeats for one in written)
            counted = len(written) - repeated + (min(repeated, 1) if once else repeated)
            if written and counted >= least and all(one in written for one in members if one.required):
                found.add(text)
            for one in members:
                if (one in written and not one.repeats) or len(written) == most:
                    continue
                if ordered and not may_follow(one, written, members):
                    continue
                begin = text + "a" if written else text
                left += [
                    (begin + more, [*written, one])
                    for more in known[one.rule - first]
                    if len(begin + more) <= LONGEST
                ]
        return frozenset(found)

    return Part(e.any_order("a", *members, least=least, most=most, once=once, ordered=ordered), texts)


def orders(rules: int, first: int) -> st.SearchStrategy[Part]:
    """Different rules in any order, with `a` between them."""
    kinds = st.sampled_from([{}, {}, {"required": True}, {"repeats": True}])

    def members(chosen: list[tuple[int, dict[str, bool]]]) -> list[e.Member]:
        return [e.Member(first + rule, **kind) for rule, kind in chosen]

    some = st.lists(st.tuples(st.integers(0, rules - 1), kinds), min_size=1, unique_by=lambda it: it[0])
    counts = st.tuples(st.integers(0, 3), st.none() | st.integers(1, 4), st.booleans(), st.booleans())
    return st.tuples(some.map(members), counts).map(lambda it: in_any_order(it[0], *it[1], first))


def parts(rules: int, first: int) -> st.SearchStrategy[Part]:
    return st.recursive(
        terminals() | calls(rules, first) | orders(rules, first),
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=3).map(sequence),
            st.lists(inner, min_size=2, max_size=3).map(choice),
            st.builds(repeated, inner, st.integers(0, 2), st.none() | st.integers(0, 2)),
        ),
        max_leaves=6,
    )


def grammars(most: int = 4, first: int = 0) -> st.SearchStrategy[list[Part]]:
    """The bodies of some rules, which have the numbers from `first` on."""
    return st.integers(1, most).flatmap(lambda n: st.lists(parts(n, first), min_size=n, max_size=n))


def short_texts(rules: list[Part]) -> list[Texts]:
    """Returns, for each rule, its texts up to the length LONGEST: the least fixed point."""
    known: list[Texts] = [frozenset() for _ in rules]
    while True:
        new = [rule.texts(known) for rule in rules]
        if new == known:
            return known
        known = new
