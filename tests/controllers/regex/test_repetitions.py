"""Repetitions with counts: from the fourth one on their states are copies of each other."""

from __future__ import annotations

import itertools
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.controllers.regex.engine import Engine, Refused
from tests.thorough import cases

TEXTS = ["".join(text) for size in range(1, 9) for text in itertools.product("ab", repeat=size)]


@dataclass(frozen=True)
class Node:
    """A pattern; `ends` says where its matches end that begin at any of these places."""

    pattern: str

    def ends(self, text: str, places: AbstractSet[int]) -> set[int]:
        return {at + 1 for at in places if at < len(text) and text[at] in self.pattern}


@dataclass(frozen=True)
class Both(Node):
    left: Node
    right: Node

    def ends(self, text: str, places: AbstractSet[int]) -> set[int]:
        return self.right.ends(text, self.left.ends(text, places))


@dataclass(frozen=True)
class Either(Node):
    left: Node
    right: Node

    def ends(self, text: str, places: AbstractSet[int]) -> set[int]:
        return self.left.ends(text, places) | self.right.ends(text, places)


@dataclass(frozen=True)
class Repeated(Node):
    part: Node
    least: int
    most: int

    def ends(self, text: str, places: AbstractSet[int]) -> set[int]:
        now, found = set(places), set(places) if self.least == 0 else set()
        for count in range(1, self.most + 1):
            now = self.part.ends(text, now)
            if count >= self.least:
                found |= now
        return found


def repeated(part: Node, least: int, more: int) -> Node:
    return Repeated(f"(?:{part.pattern}){{{least},{least + more}}}", part, least, least + more)


def either(left: Node, right: Node) -> Node:
    return Either(f"(?:{left.pattern}|{right.pattern})", left, right)


nodes = st.recursive(
    st.sampled_from(["a", "b", "[ab]"]).map(Node),
    lambda inner: st.one_of(
        st.builds(repeated, inner, st.integers(0, 7), st.integers(0, 9)),
        st.builds(lambda left, right: Both(left.pattern + right.pattern, left, right), inner, inner),
        st.builds(either, inner, inner),
    ),
    max_leaves=7,
)


@settings(max_examples=cases(20, 60), deadline=None, suppress_health_check=list(HealthCheck))
@given(node=nodes)
def test_all_short_texts(engine: Engine, node: Node) -> None:
    try:
        engine.compile(node.pattern)
    except Refused as refused:
        assert "too large" in refused.message
        return
    for text in TEXTS:
        matches = len(text) in node.ends(text, {0})
        assert (engine.run(text.encode())[-1] == 3) == matches, (node.pattern, text)


def test_long_counted_loops(engine: Engine) -> None:
    engine.compile("x(?:ab?|c[de]{2}){40,1000}y")
    assert engine.run(b"x" + b"ab" * 1000 + b"y")[-1] == 3
    assert engine.run(b"x" + b"cde" * 40 + b"y")[-1] == 3
    for wrong in (b"a" * 39 + b"y", b"ab" * 1001, b"ab" * 500 + b"cd" + b"y"):
        assert engine.run(b"x" + wrong)[-1] == 0
    assert engine.inexact_states(30_000) == 0
