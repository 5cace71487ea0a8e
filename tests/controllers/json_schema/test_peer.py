"""Compares complete masks with llguidance after each token; `jsonschema` judges differences.

`python -m lab.oracles.json_schema.compare` goes further.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any

import pytest

from lab.oracles.json_schema.compare import compare_published, compare_random
from lab.oracles.json_schema.differences import (
    DEAD_END,
    KNOWN,
    OURS_NARROW,
    OURS_WIDE,
    Difference,
    known,
    other_spelling,
)
from lab.oracles.json_schema.expressions import in_python
from lab.oracles.json_schema.judge import Judge
from lab.oracles.json_schema.peer import Pair, pair
from lab.oracles.json_schema.schema_engine import SPACED, Engine
from tests.controllers.json_schema.test_document import table
from tests.thorough import cases


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with pair(tmp_path_factory.mktemp("peer")) as both:
        yield both


def test_random_schemas(both: Pair, engine: Engine) -> None:
    judge = Judge(both, engine)
    refusals = compare_random(judge, range(cases(20, 60)))
    assert not judge.unknown, "\n".join(map(str, judge.unknown))
    assert refusals["nobody"] > cases(11, 35) and judge.masks > cases(450, 1500)


def test_published_schemas(both: Pair, engine: Engine) -> None:
    judge = Judge(both, engine)
    refusals = compare_published(judge, 20)
    assert not judge.unknown, "\n".join(map(str, judge.unknown))
    assert refusals["nobody"] > 10 and judge.masks > 600


@pytest.mark.parametrize(
    ("schema", "other", "text", "verdict"),
    [
        ({"type": "integer"}, {"type": ["integer", "null"]}, "12", OURS_WIDE),
        ({"type": "integer", "minimum": 3, "maximum": 40}, {"type": "integer"}, "12", OURS_WIDE),
        ({"type": "string", "maxLength": 3}, {"type": "string", "maxLength": 4}, '"abc"', OURS_WIDE),
        ({"type": "string"}, {"type": "string", "pattern": "^[a-z]*$"}, '"abc"', OURS_NARROW),
        (
            {"properties": {"a": {}, "b": {}}, "additionalProperties": False, "type": "object"},
            {"properties": {"a": {}, "b": {}}, "required": ["b"], "type": "object"},
            '{"a": 1, "b": 2}',
            OURS_NARROW,
        ),
        ({"type": "array", "minItems": 1}, {"type": "array"}, "[1, [2]]", OURS_WIDE),
        ({"enum": ["ab", "ac"]}, {"enum": ["ab"]}, '"ab"', OURS_NARROW),
    ],
)
def test_comparison_detects_wrong_masks(
    both: Pair, engine: Engine, schema: Any, other: Any, text: str, verdict: str
) -> None:
    """Our engine gets a different schema."""
    judge = Judge(both, engine)
    assert not judge.compile(schema)
    assert not both.compile_ours(other)
    engine.compile(other, SPACED)
    judge.walk(random.Random(0), both.tokenize(text), 10)
    assert verdict in [one.verdict for one in judge.unknown]


@pytest.mark.parametrize("before", ['"', '"a', '"a@'])
def test_rare_characters_do_not_look_like_dead_ends(both: Pair, engine: Engine, before: str) -> None:
    """The search for an end must not report a dead end only because `@` rarely occurs at random."""
    judge = Judge(both, engine)
    assert not judge.compile({"type": "string", "pattern": r"^\S+@\S+$"})
    for seed in range(3):
        judge.walk(random.Random(seed), both.tokenize(before))
    assert not judge.unknown, "\n".join(map(str, judge.unknown))
    assert judge.classes["other blanks"] > 0 and judge.classes[DEAD_END] == 0


@pytest.mark.parametrize(
    ("name", "schema", "before", "token", "ours"),
    [
        ("delete", {}, '"a', "\x7f", True),
        ("integers with .0", {"enum": [12]}, "12", ".0", True),
        ("zeros at the end", {"multipleOf": 0.5}, "[1.5", "0", True),
        ("zeros at the end", {"maximum": 0.1}, "0.1", "0", True),
        ("missing zeros", {"multipleOf": 0.25}, "[1.5", ",", True),
        ("missing zeros", {"multipleOf": 0.25}, "1.5", "", True),
        ("late properties", {"properties": {"ab": {}, "c": {}}}, '{"c": 1, "a', 'b"', True),
        ("late properties", {"items": {"properties": {"ab": {}}}}, '[{"c": 1, "ab', '":', True),
        ("blanks", {"pattern": r"^\s$"}, '"', "\ufeff", True),
        ("other blanks", {"pattern": r"^\s$"}, '"', "\x85", False),
        ("ends of lines", {"pattern": "^.$"}, '"\\', "r", False),
        ("quotes", {"pattern": '^[^"]$'}, '"a', '\\"', False),
        ("addresses", {"format": "ipv6"}, '"::1', ".", True),
        ("long names", {"format": "email"}, '"' + "a" * 60, "-----", False),
        ("long names", {"format": "hostname"}, '"a.b.c.' + "d" * 31, ".e", False),
        ("long names", {"format": "hostname"}, '"' + "a." * 7 + "a", ".e", False),
        ("reserved names", {"format": "hostname"}, '"ab', "--", False),
        ("escapes", {}, '{"a\\', "/b", False),
        ("escapes", {}, '"\\u00', "e9", False),
        ("spellings of zero", {"type": "integer", "minimum": -5}, '{"a": ', "-0", True),
        ("spellings of zero", {"maximum": 5}, "0", "e+", True),
        ("many digits", {"exclusiveMaximum": 1}, "0.123456789012345", "6", False),
        ("leap days", {"format": "date"}, '"2023-02-', "29", False),
        ("leap seconds", {"format": "time"}, '"23:59:', "60", False),
        ("leap seconds", {"format": "date-time"}, '"2024-02-29T23:59:', "6", False),
    ],
)
def test_classes(name: str, schema: Any, before: str, token: str, ours: bool) -> None:
    found = known(Difference(schema, before.encode(), token.encode(), ours))
    assert found is not None and found.name == name
    assert found in KNOWN and found.ours == ours


@pytest.mark.parametrize(
    ("schema", "before", "token", "ours"),
    [
        ({}, '"a', "b", True),
        ({"properties": {"ab": {}}}, '{"c": 1, "a', "c", True),
        ({"properties": {"ab": {}}}, "{", '"', True),
        ({}, '"a', '"', False),
        ({"enum": [12]}, "12", ".5", True),
        ({"multipleOf": 0.5}, "1.5", "5", True),
        ({}, '"', "\ufeff", True),
        ({"pattern": "^a$"}, '"', "\\r", False),
        ({}, '"\\', "n", False),
        ({"type": "integer"}, "", "-1", False),
        ({"format": "time"}, '"23:59:', "59", False),
        ({}, "", "", True),
        ({}, "1", "", False),
    ],
)
def test_unclassified_differences(schema: Any, before: str, token: str, ours: bool) -> None:
    assert known(Difference(schema, before.encode(), token.encode(), ours)) is None


def test_the_document_lists_the_classes() -> None:
    rows = table("| class | more is allowed by | why |")
    assert {(name, who == "ours") for name, who, _ in rows} == {
        *((one.name, one.ours) for one in KNOWN),
        ("dead ends", False),
    }


def test_spellings() -> None:
    assert other_spelling(rb'{"a": "\u00e9"}') and other_spelling(rb'"\/"') and other_spelling(rb'"\u000a"')
    assert other_spelling(rb'"\u001F"') and not other_spelling(rb'"\n\"\\\u001f\\u00e9"')


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        (r"^\s$", ["\t", "\ufeff", "\u2003"], ["\x85", "\x1c", "a"]),
        (r"^\S$", ["\x85", "a", "😀"], [" ", "\ufeff"]),
        (r"^[^\s,]$", ["a", "\x85"], [",", "\ufeff"]),
        (r"^[\D]$", ["a", "٣"], ["3"]),
        (r"^\d\.$", ["1."], ["٣.", "1x"]),
        (r"^.$", ["a", "\x85"], ["\n", "\r", "\u2028"]),
        (r"^[.$]$", [".", "$"], ["a", ".\n"]),
        (r"^\w[[]$", ["a["], ["é["]),
        (r"^[\p{Lu}_]\P{L}$", ["É1", "_-"], ["éa", "Éa"]),
    ],
)
def test_expressions(pattern: str, matching: list[str], others: list[str]) -> None:
    found = re.compile(in_python(pattern))
    assert all(found.search(text) for text in matching)
    assert not any(found.search(text) for text in others)
