"""`uniqueItems` with any number of values: exactly the arrays of different items can be written."""

from __future__ import annotations

import collections
import functools
import itertools
import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from aicirt.wasm import Program
from lab.oracles.grammars.walk import Controller
from lab.oracles.json_schema.orders import NEGATED, ways
from lab.oracles.json_schema.schema_engine import COMPACT, FLEXIBLE, SPACED, Engine, Refused
from lab.oracles.json_schema.schemas import Schemas
from lab.oracles.json_schema.values import LOSSY, mentions
from lab.runners.host import Vocab
from tests.controllers.json_schema.test_random import finished_walks
from tests.thorough import cases

TWO = {"a": {"enum": [1, 2]}, "b": {"type": "boolean"}}
ITEMS: list[Any] = [
    True,
    {"type": "string"},
    {"type": "number"},
    {"type": ["string", "integer"]},
    {"type": "integer", "minimum": 1, "maximum": 12},
    {"enum": [1, 1.5, "a", "ab", "abc", None, True, [1], {"a": 1}, [], ""]},
    {"type": "string", "maxLength": 1, "pattern": "^[a-k]$"},
    {"type": "object"},
    {"type": "object", "properties": TWO, "additionalProperties": False},
    {"type": "object", "properties": {"id": {"type": "string"}, **TWO}, "required": ["id"]},
    {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
    {"type": "array", "items": {"enum": [*range(10)]}, "uniqueItems": True, "minItems": 1, "maxItems": 2},
    {"anyOf": [{"type": "array", "uniqueItems": True}, {"type": "array", "items": {"type": "integer"}}]},
]


def array(rng: random.Random) -> dict[str, Any]:
    """Returns a random schema of an array with different items."""
    items = rng.choice(ITEMS) if rng.random() < 0.7 else Schemas(rng).schema(2)
    made: dict[str, Any] = {"type": "array", "items": items, "uniqueItems": True}
    if rng.random() < 0.3:
        made["prefixItems"] = [rng.choice([*ITEMS, {"const": 1}]) for _ in range(rng.randint(1, 2))]
    if rng.random() < 0.3:
        made["minItems"] = rng.randint(1, 3)
    if rng.random() < 0.3:
        made["maxItems"] = rng.randint(2, 4)
    if rng.random() < 0.2:
        made["contains"] = rng.choice([*ITEMS, {"const": 1}])
    if rng.random() < 0.2:
        made = {"anyOf": [made, {"type": "array", "items": rng.choice(ITEMS), "minItems": rng.randint(0, 3)}]}
    return made if rng.random() < 0.7 else {"type": "object", "properties": {"a": made}, "required": ["a"]}


def value(rng: random.Random, source: Schemas, schema: dict[str, Any]) -> Any:
    """Returns a value of the schema; some of its items are equal."""
    if "properties" in schema:
        return {"a": value(rng, source, schema["properties"]["a"])}
    if "anyOf" in schema:
        return value(rng, source, rng.choice(schema["anyOf"]))
    some = [source.value(schema["items"]) for _ in range(rng.randint(1, 4))]
    first = [source.value(one) for one in schema.get("prefixItems", [])]
    return [*first, *rng.choices(some, k=rng.randint(0, 2))] if rng.random() < 0.5 else [*first, *some]


@pytest.mark.parametrize("seed", range(2))
def test_values(engine: Engine, seed: int) -> None:
    """Valid values are accepted, invalid values are not in any order of their properties."""
    counts = collections.Counter[str]()
    for number in range(60):
        rng = random.Random(seed * 1000 + number)
        schema, source = array(rng), Schemas(rng)
        try:
            engine.compile(schema, SPACED, any_order=True)
        except Refused:
            counts["refused"] += 1
            continue
        validator = Draft202012Validator(schema)
        for _ in range(15):
            made = value(rng, source, schema)
            valid = validator.is_valid(made)
            accepted = any(map(engine.accepts, ways(made, 20)))
            assert valid or not accepted, (schema, made)
            assert accepted or not valid or mentions(schema, (*LOSSY, *NEGATED)), (schema, made)
            counts["valid" if valid else "invalid"] += 1
    assert counts["valid"] > 150 and counts["invalid"] > 150, counts
    assert counts["refused"] < 20, counts


def test_blanks_make_no_item_different(engine: Engine) -> None:
    """The search for a different item looks at one of all texts that differ only in blanks."""
    lists = {"type": "array", "items": {"type": "boolean"}}
    engine.compile({"type": "array", "items": lists, "uniqueItems": True}, FLEXIBLE)
    for before, allowed in (
        (b"[[true], [true", b","),
        (b"[[true], [true, false", b"\n ,]"),
        (b"[[true], [", b"\n ]tf"),
    ):
        state = functools.reduce(engine.append, before, engine.initial())
        assert engine.row(state) == (sorted(allowed), False), before
    assert engine.accepts(b"[[true], [true, false]]") and engine.accepts(b"[[true], [\n \t\tfalse]]")


@pytest.mark.parametrize("whitespace", [FLEXIBLE, COMPACT])
def test_walks(engine: Engine, whitespace: int) -> None:
    """Every text that can be written is valid, and can be completed."""
    assert finished_walks(engine, array, range(20), whitespace) > 40


@pytest.mark.parametrize(
    ("items", "first", "second"),
    [
        (True, "1", "1.0"),
        (True, "100", "1e+2"),
        (True, "0.0", "-0"),
        (True, "[1, 2]", "[1,\n 2.0]"),
        (True, '{"a": 1, "b": [2]}', '{"b": [2.0], "a": 1}'),
        (True, '{"a": 1}', '{"a": 2, "a": 1}'),
        (True, "0.1", "0.1000000000000000000001"),
        ({"type": "string"}, '"\\""', '"\\""'),
    ],
)
def test_equal_values_in_other_spelling(engine: Engine, items: Any, first: str, second: str) -> None:
    engine.compile({"type": "array", "items": items, "uniqueItems": True}, FLEXIBLE)
    assert engine.accepts(f"[{first}]") and engine.accepts(f"[{second}]")
    assert not engine.accepts(f"[{first}, {second}]")
    assert not engine.accepts(f"[{first}, null, {second}]")


@pytest.mark.parametrize(
    ("first", "second"),
    [("1", "true"), ("0", "false"), ("0", '""'), ("[]", "{}"), ("[1, 2]", "[[1, 2]]"), ("null", '"null"')],
)
def test_different_values_of_similar_spelling(engine: Engine, first: str, second: str) -> None:
    engine.compile({"type": "array", "uniqueItems": True})
    assert engine.accepts(f"[{first}, {second}]")


def test_an_item_can_always_be_completed(engine: Engine) -> None:
    """An item does not begin if all its completions equal earlier items."""
    names = [f"{letter}{digit}" for letter in "abc" for digit in "1234"]
    engine.compile({"type": "array", "items": {"enum": names}, "uniqueItems": True})
    written = ", ".join(f'"{name}"' for name in names if name.startswith("a"))
    assert engine.run(f'[{written}, "a')[0] == len(f'[{written}, "')
    everything = ", ".join(f'"{name}"' for name in names)
    assert engine.run(f"[{everything}, ")[0] == len(f"[{everything}")
    assert engine.accepts(f"[{everything}]")


def test_only_arrays_with_the_keyword_need_different_items(engine: Engine) -> None:
    unique = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
    engine.compile({"anyOf": [unique, {"type": "array", "items": {"const": "a"}, "minItems": 3}]})
    assert engine.accepts('["a", "b"]')
    assert engine.accepts('["a", "a", "a"]')
    assert not engine.accepts('["a", "a"]')
    assert not engine.accepts('["b", "b", "b"]')


@pytest.mark.parametrize(
    ("items", "values"),
    [
        ({"type": "integer", "minimum": -1, "maximum": 2}, [-1, 0, 1, 2, 3]),
        ({"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 4}, [0, 1, 2, 3, 4]),
        ({"type": "string", "pattern": "^[ab]c?$"}, ["a", "ac", "b", "bc", "c"]),
        ({"type": "string", "pattern": "^(?:a|a|ab?)$"}, ["a", "ab", "b"]),
        ({"type": "string", "enum": ["a"]}, ["a"]),
        ({"type": "string", "maxLength": 0}, ["", "a"]),
        (
            {"anyOf": [{"type": "integer", "minimum": 4, "maximum": 5}, {"enum": ["x", "y"]}]},
            [4, 5, "x", "y"],
        ),
    ],
)
def test_few_values_for_required_items(engine: Engine, items: Any, values: list[Any]) -> None:
    """All arrays of some values, with each number of required items, compared with a validator."""
    for least in range(2, 5):
        schema = {"type": "array", "items": items, "minItems": least, "uniqueItems": True}
        validator = Draft202012Validator(schema)
        arrays = [one for size in range(6) for one in itertools.permutations(values, size)]
        arrays += [(*one, one[0]) for one in arrays if one]
        valid = [one for one in arrays if validator.is_valid(list(one))]
        try:
            engine.compile(schema)
        except Refused as refused:
            # several kinds of values are not counted together
            assert not valid or "anyOf" in items, refused
            continue
        for one in arrays:
            assert engine.accepts(json.dumps(one)) == (one in valid), one


def test_required_items_of_many_values(engine: Engine) -> None:
    for items, value in [
        ({"type": "string", "format": "uuid"}, "123e4567-e89b-12d3-a456-42661417400{}"),
        ({"type": "string", "format": "date"}, "2024-02-0{}"),
        ({"type": "string", "minLength": 3, "maxLength": 60}, "abc{}"),
        ({"type": "string", "pattern": "^[a-z]+[0-9]$", "not": {"enum": ["a1"]}}, "b{}"),
    ]:
        schema = {"type": "array", "items": items, "minItems": 3, "uniqueItems": True}
        engine.compile(schema)
        one, two, three = (value.format(i) for i in (1, 2, 3))
        assert engine.accepts(json.dumps([one, two, three])) and not engine.accepts(json.dumps([one, two]))
        assert not engine.accepts(json.dumps([one, two, one])), items
    engine.compile(
        {"type": "array", "items": {"type": "array", "items": True}, "minItems": 3, "uniqueItems": True}
    )
    assert engine.accepts("[[1], [2], [1, 2]]") and not engine.accepts("[[1], [2], [1]]")


def test_long_arrays(engine: Engine) -> None:
    engine.compile({"type": "array", "uniqueItems": True}, COMPACT)
    items = [{"number": number, "text": "x" * 50} for number in range(300)]
    text = json.dumps(items, separators=(",", ":"))
    assert engine.accepts(text)
    assert not engine.accepts(text[:-1] + "," + json.dumps(items[17], separators=(",", ":")) + "]")


SHORT = {"type": "string", "maxLength": 2}
#: items in whose strings few characters fit, or a few texts
NARROW: list[Any] = [
    SHORT,
    {"type": "string", "minLength": 1, "maxLength": 3},
    {"type": "string", "pattern": "^[ab]{1,2}$"},
    {"type": "string", "pattern": "^a*b?$"},
    {"enum": ["a", "ab", "b", "\n", "é"]},
    {"type": ["string", "integer"], "maxLength": 1},
    {"type": "object", "properties": {"a": SHORT, "b": SHORT}, "additionalProperties": False},
    {"type": "array", "items": SHORT, "uniqueItems": True, "maxItems": 2},
    {"type": "object", "additionalProperties": SHORT, "minProperties": 2},
]
PIECES = ["ab", "ba", "aa", 'a"', 'ab"', 'b",', '", "', '"a', '"ab', '["', '"]', ": ", '": "', '{"']
TOKENS = [*(piece.encode() for piece in [*PIECES, "\\n", "a\\", "é", "éa"]), b"\xc3", b"a\xc3"]
VOCAB = Vocab([*(bytes([byte]) for byte in range(256)), *TOKENS, b"<eos>"], eos=[256 + len(TOKENS)])
#: bytes of texts that come close to what fits
LIKELY = set('ab", []{}:é'.encode())


def appended(engine: Engine, state: int, text: bytes) -> int:
    for byte in text:
        state = engine.append(state, byte) if state else 0
    return state


@pytest.mark.parametrize("items", NARROW)
def test_masks_near_the_end_of_strings(program: Callable[[str], Program], engine: Engine, items: Any) -> None:
    """A token is allowed if its bytes are, one after the other: masks take many of them at once."""
    schema = {"type": "array", "items": items, "uniqueItems": True}
    engine.compile(schema, SPACED)
    made = Controller(program("json_schema"), VOCAB, json.dumps({"schema": schema, "whitespace": "spaced"}))
    for seed in range(cases(3, long=40)):
        rng, guest, tokens, state = random.Random(seed), made.start(), list[int](), engine.initial()
        for _ in range(40):
            found = made.state(guest, tokens)
            allowed = [token for token in VOCAB.text if appended(engine, state, made.bytes_of(token))]
            assert found.tokens == allowed, (seed, found, allowed)
            assert found.end == engine.may_end(state)
            if not allowed:
                break
            likely = [token for token in allowed if LIKELY.issuperset(made.bytes_of(token))]
            tokens = [rng.choice(likely if likely and rng.random() < 0.9 else allowed)]
            state = appended(engine, state, made.bytes_of(tokens[0]))
        guest.instance.close()
