"""Captures of regular expressions: the texts of named groups."""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from lab.oracles.grammars.expressions import (
    Call,
    Choice,
    Expr,
    Grammar,
    Repeat,
    Sequence,
    Terminal,
    pattern,
    random_regex,
)
from lab.oracles.grammars.walk import Controller
from tests.controllers.extract.readings import Readings, by_name

Make = Callable[[str], Controller]


def argument(pattern: str) -> str:
    return json.dumps({"regex": pattern})


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        (
            r"from (?P<city>[A-Z][a-z]+) in (?<days>\d+) days",
            "from Oslo in 3 days",
            {"city": ["Oslo"], "days": ["3"]},
        ),
        (r"^(?P<all>[a-z]+)$", "ab", {"all": ["ab"]}),
        (r"^(?P<all>[a-z]+)$", "", None),
        (r"(?:(?P<word>[a-z]+)[,.])+", "ab,c.", {"word": ["ab", "c"]}),
        (r"(?P<word>a|b){2,3}", "aba", {"word": ["a", "b", "a"]}),
        (r"(?P<word>a|b){2,3}", "a", None),
        (r"(?P<word>a|b){2,3}", "abab", None),
        (r"(?P<pair>(?P<key>\w+)=(?P<value>\w*))", "k=", {"pair": ["k="], "key": ["k"], "value": [""]}),
        (r"(?P<both>(?P<same>x))", "x", {"both": ["x"], "same": ["x"]}),
        (r"x|y(?P<digit>\d)|z", "z", {}),
        (r"x|y(?P<digit>\d)|z", "y7", {"digit": ["7"]}),
        (r"(?i)a(?P<rest>bc)?", "AbC", {"rest": ["bC"]}),
        (r"(?P<text>(?until:;))(?P<rest>.*)", "ab;c;", {"text": ["ab;"], "rest": ["c;"]}),
    ],
)
def test_captures(extract: Make, pattern: str, text: str, expected: dict[str, list[str]] | None) -> None:
    made = extract(argument(pattern))
    assert made.accepts(text) == (expected is not None)
    if expected is not None:
        assert made.captures(made.run(text)) == expected


@dataclass
class Named:
    """A random pattern, and the same as a grammar whose rules are its named groups."""

    rng: random.Random
    grammar: dict[str, Expr] = field(default_factory=dict)

    def make(self, depth: int) -> tuple[str, Expr]:
        kind = self.rng.randrange(6) if depth else 0
        if kind == 0:
            regex = random_regex(self.rng, "ab", 1)
            return f"(?:{pattern(regex)})", Terminal("regex", regex)
        if kind == 1:
            text, expr = self.make(depth - 1)
            least = self.rng.randrange(2)
            most = self.rng.choice((None, 1, 2))
            return f"(?:{text}){{{least},{most or ''}}}", Repeat(expr, least, most)
        if kind < 4:
            text, expr = self.make(depth - 1)
            name = f"g{len(self.grammar)}"
            self.grammar[name] = expr
            return f"(?P<{name}>{text})", Call(name)
        parts = [self.make(depth - 1) for _ in range(2)]
        exprs = tuple(expr for _, expr in parts)
        if kind == 4:
            return f"(?:{'|'.join(text for text, _ in parts)})", Choice(exprs)
        return "".join(text for text, _ in parts), Sequence(exprs)


@pytest.mark.parametrize("seed", range(3))
def test_texts_are_those_of_the_pattern_and_captures_those_of_a_reading(extract: Make, seed: int) -> None:
    rng, compared = random.Random(seed), 0
    while compared < 15:
        named = Named(rng)
        text, expr = named.make(3)
        if not named.grammar:
            continue
        grammar: Grammar = {**named.grammar, "start": expr}
        made = extract(argument(text))
        for letters in itertools.chain.from_iterable(itertools.product("ab", repeat=n) for n in range(1, 5)):
            whole = "".join(letters)
            accepted = re.fullmatch(text, whole) is not None
            assert made.accepts(whole) == accepted, (text, whole)
            if not accepted or rng.random() < 0.7:
                continue
            readings = Readings(grammar, whole).of(Call("start"), 0, len(whole), frozenset())
            found = made.captures(made.run(whole))
            expected = [
                {name: texts for name, texts in by_name(reading).items() if name != "start"}
                for reading in readings
            ]
            assert found in expected, (text, whole)
            compared += 1


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("[a-z]+", "there are no captures: name parts of the text"),
        (r"(?P<a>x)\b", "column 9: with named groups, ^ is only possible as the first character"),
        ("a(?P<a>^x)", "column 8: with named groups, ^ is only possible as the first character"),
        ("(?P<a>x)(?=y)y", "column 9: with named groups, look-arounds are not possible"),
        ("(?P<a>(?<!x)y)", "column 7: with named groups, look-arounds are not possible"),
        ("(?=(?P<a>x))x", "column 1: a named group inside a look-around has no text"),
        ("(?not:(?P<a>x))", "column 1: a named group inside (?until:...) or (?not:...) has no text"),
        ("(?P<a>^x)", "column 7: with named groups, ^ is only possible as the first character"),
        ("(?P<a>x", "column 1: this group is not closed"),
        ("(?P<a>x)(?P<a>y)", "column 9: there is another group with the name 'a'"),
        ("".join(f"(?P<g{n}>x)" for n in range(257)), "the pattern has more than 256 named groups"),
        ("(?P<a>[^\\s\\S])", "no text matches this pattern"),
    ],
)
def test_refused(extract: Make, pattern: str, why: str) -> None:
    assert why in extract(argument(pattern)).refusal()
