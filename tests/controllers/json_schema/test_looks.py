"""Patterns with look-arounds, compared with the standard library on all short texts."""

from __future__ import annotations

import itertools
import json
import random
import re
from typing import Any

import pytest

from lab.oracles.json_schema.schema_engine import Engine, Refused
from tests.controllers.regex.looks import Looks

#: some are written as escapes, which end with a character of their own
ALPHABET = ["a", "n", "\n", '"']
CHARACTERS = ["a", "n", r"\n", '"', "[an]", "[^n]", "."]
TEXTS = ["".join(text) for size in range(5) for text in itertools.product(ALPHABET, repeat=size)]


def check(engine: Engine, schema: dict[str, Any], wanted: list[str]) -> None:
    try:
        engine.compile({"type": "string", **schema})
    except Refused as refused:
        assert "no value meets this schema" in str(refused), schema
        assert wanted == [], schema
        return
    assert [text for text in TEXTS if engine.accepts(json.dumps(text))] == wanted, schema


@pytest.mark.parametrize(
    ("pattern", "allowed", "others"),
    [
        (  # what pydantic writes for a Decimal; the first alternative is not anchored at its end
            r"^(?!^[-+.]*$)[+-]?0*(?:\d{0,4}|(?=[\d.]{1,5}0*$)\d*\.\d*0*$)",
            ["1", "-12.34", "1234", "123.4", "1.234", "007", "abc"],
            ["", "-", ".", "+-."],
        ),
        (r"^-?(?=[\d.]{1,5}$)\d*\.\d*$", ["1.2", "-.", "-123.4"], ["1", "-1234.5", "12345."]),
        ("^(?!no)[a-z]+$", ["yes"], ["north"]),
        ("a(?=b)", ["cab"], ["ca", "b"]),
        (r"(?<!\\)n$", ["\n n", "n", "an"], ["\\n", "a"]),
        ("(?<=n)a", ["na", "bna"], ["\na", "xa"]),
        ("^(?:(?!--)[a-z-])+(?<!-)$", ["a-b", "a"], ["a--b", "a-", ""]),
        (r"^(?=.*\bword\b)(?!.*\bnever\b)", ["a word", "word, nevermore"], ["words", "never a word"]),
        ("^(a(?=b)|b(?=a|$))*$", ["", "ab", "bab"], ["aa", "abb", "ba"]),
    ],
)
def test_look_arounds(engine: Engine, pattern: str, allowed: list[str], others: list[str]) -> None:
    engine.compile({"type": "string", "pattern": pattern})
    assert [text for text in allowed if not engine.accepts(json.dumps(text))] == []
    assert [text for text in others if engine.accepts(json.dumps(text))] == []


@pytest.mark.parametrize("seed", range(10))
def test_random_look_arounds(engine: Engine, seed: int) -> None:
    looks = Looks(random.Random(seed), CHARACTERS, "^$")
    for _ in range(10):
        pattern = looks.alternatives(3)
        search = re.compile(pattern.replace("$", r"\Z")).search
        check(engine, {"pattern": pattern}, [text for text in TEXTS if search(text)])


@pytest.mark.parametrize("seed", range(10))
def test_combinations(engine: Engine, seed: int) -> None:
    """Two patterns that both have to match, one that must not, and a length."""
    rng = random.Random(seed)
    looks = Looks(rng, CHARACTERS, "^$")
    for _ in range(5):
        patterns = [looks.alternatives(2) for _ in range(3)]
        a, b, c = (re.compile(pattern.replace("$", r"\Z")).search for pattern in patterns)
        least, most = sorted([rng.randrange(4), rng.randrange(5)])
        schema = {
            "allOf": [{"pattern": patterns[0]}, {"pattern": patterns[1]}],
            "not": {"pattern": patterns[2]},
            "minLength": least,
            "maxLength": most,
        }
        check(
            engine,
            schema,
            [text for text in TEXTS if a(text) and b(text) and not c(text) and least <= len(text) <= most],
        )


def test_word_boundaries_are_combined_with_other_keywords(engine: Engine) -> None:
    engine.compile({"type": "string", "pattern": r"\bcat\b", "not": {"pattern": r"\bdog\b"}, "maxLength": 9})
    assert engine.accepts('"cat dogs"') and engine.accepts('"the cat"')
    assert (
        not engine.accepts('"cats"')
        and not engine.accepts('"cat dog"')
        and not engine.accepts('"the cat sat"')
    )


def test_names_of_properties(engine: Engine) -> None:
    engine.compile(
        {
            "type": "object",
            "patternProperties": {"^(?!x-)[a-z-]+$": {"type": "integer"}, "(?<=^x-)y": {"type": "null"}},
            "additionalProperties": {"type": "string"},
        }
    )
    for text in ('{"a": 1, "x-y": null, "x-a": "b"}', '{"A": "b", "ax-y": 1}'):
        assert engine.accepts(text), text
    for text in ('{"a": "b"}', '{"x-a": 1}', '{"x-y": 1}', '{"A": 1}', '{"ax-y": null}'):
        assert not engine.accepts(text), text


def test_a_pattern_that_is_too_large(engine: Engine) -> None:
    with pytest.raises(Refused, match="its automaton is too large: the pattern with its look-arounds"):
        engine.compile({"type": "string", "pattern": "^(?!.*a.{30}b)"})
