"""Objects whose properties come in any order, or late."""

from __future__ import annotations

import collections
import itertools
import json
import random
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from lab.oracles.json_schema.orders import NEGATED, ways
from lab.oracles.json_schema.schema_engine import SPACED, Engine, Refused
from lab.oracles.json_schema.schemas import ObjectSchemas, Schemas
from lab.oracles.json_schema.values import LOSSY, mentions
from tests.controllers.json_schema.test_min_properties import NAMES
from tests.controllers.json_schema.test_min_properties import schema as counted_schema
from tests.controllers.json_schema.test_random import walk


def test_values(engine: Engine) -> None:
    """Valid values are accepted in every order of their properties, invalid values in none."""
    counts = collections.Counter[str]()
    for seed in range(120):
        rng = random.Random(seed)
        source = (Schemas if seed % 2 else ObjectSchemas)(rng)
        schema = source.schema()
        if mentions(schema, (*LOSSY, *NEGATED)):
            continue
        try:
            engine.compile(schema, SPACED, any_order=True)
        except Refused:
            continue
        validator = Draft202012Validator(schema)
        for _ in range(10):
            value = source.value(schema)
            valid = validator.is_valid(value)
            texts = list(ways(value))
            accepted = sum(map(engine.accepts, texts))
            # values of enumerations are written in one order
            some = 1 if mentions(schema, ("enum",)) else len(texts)
            assert accepted >= some if valid else not accepted, (schema, value)
            counts["valid" if valid else "invalid"] += 1
    assert counts["valid"] > 140 and counts["invalid"] > 70, counts


@pytest.mark.parametrize("seed", range(1))
def test_counted_values(engine: Engine, seed: int) -> None:
    counts = collections.Counter[str]()
    for number in range(80):
        rng = random.Random(seed * 1000 + number)
        schema = counted_schema(rng)
        if mentions(schema, NEGATED):
            continue
        validator = Draft202012Validator(schema)
        try:
            engine.compile(schema, SPACED, any_order=True)
        except Refused as refused:
            counts["unsatisfiable" if "no value meets" in str(refused) else "refused"] += 1
            continue
        for _ in range(8):
            names = rng.sample(NAMES, rng.randint(0, 4))
            value = {name: rng.choice([0, 1, "a", None]) for name in names}
            valid = validator.is_valid(value)
            texts = list(ways(value, 8))
            accepted = sum(map(engine.accepts, texts))
            assert accepted == (len(texts) if valid else 0), (schema, value)
            counts["valid" if valid else "invalid"] += 1
        text = walk(engine, rng)
        assert text is None or validator.is_valid(json.loads(text)), (schema, text)
    assert counts["valid"] > 20 and counts["invalid"] > 50, counts
    assert counts["refused"] < 10, counts


def many(size: int) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {f"v{i}": {"type": "null"} for i in range(size)},
        "required": ["v0", f"v{size - 1}"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize("size", [2, 9, 33, 400])
def test_many_properties(engine: Engine, size: int) -> None:
    names = [f"v{i}" for i in range(size)]
    engine.compile(many(size), any_order=True)
    for seed in range(3):
        random.Random(seed).shuffle(names)
        assert engine.accepts(json.dumps(dict.fromkeys(names)))
        text = ", ".join(f'"{name}": null' for name in names)
        for again in (names[0], names[-1]):
            assert not engine.accepts(f'{{{text}, "{again}": null}}')
        missing = [name for name in names if name != "v0"]
        assert not engine.accepts(json.dumps(dict.fromkeys(missing)))
    engine.compile(many(size))
    assert not engine.accepts(json.dumps(dict.fromkeys(reversed([f"v{i}" for i in range(size)]))))
    late = ["v0", f"v{size - 1}", *(f"v{i}" for i in range(size - 2, 0, -1))]
    assert engine.accepts(json.dumps(dict.fromkeys(late)))


PAGING = {"type": "object", "properties": {"limit": {"type": "integer"}, "page": {"type": "integer"}}}


def test_a_late_property_does_not_lead_into_another_name(engine: Engine) -> None:
    """A model that writes properties in its own order can end the name that it has begun."""
    engine.compile(PAGING)
    assert engine.accepts('{"page": 0, "limit": 5}')
    assert engine.run('{"page": 0, "limit": "') == (len('{"page": 0, "limit": '), False)
    for text in ('{"page": 0, "limits": "x"}', '{"page": 0, "more": null, "limit": 5, "more": 1}'):
        assert engine.accepts(text)
    for text in ('{"page": 0, "limit": 5, "page": 1}', '{"page": 0, "more": 1, "page": 1}'):
        assert not engine.accepts(text)
    engine.compile({**PAGING, "additionalProperties": False})
    assert engine.accepts('{"page": 0, "limit": 5}') and not engine.accepts('{"page": 0, "more": 1}')
    engine.compile({**PAGING, "additionalProperties": False, "required": ["page"]})
    assert engine.accepts('{"page": 0, "limit": 5}') and not engine.accepts('{"limit": 5}')
    engine.compile({**PAGING, "additionalProperties": False, "patternProperties": {"^l": {}}})
    assert engine.accepts('{"page": 0, "limit": 5}') and engine.accepts('{"page": 0, "li": "x", "limit": 5}')


def test_required_properties_keep_their_order(engine: Engine) -> None:
    """So no name of a required property is sampled between two of them."""
    required, around = "bceg", {"a": ("", "b"), "d": ("c", "e"), "f": ("e", "g"), "x": ("g", "")}
    schema = {"properties": {name: {"type": "null"} for name in "abcdef"}, "required": list(required)}
    engine.compile({"type": "object", **schema})

    def in_order(text: str) -> bool:
        places = {name: place for place, name in enumerate(text)}
        others = [(places[name], *around[name]) for name in text if name in around]
        return [name for name in text if name in required] == list(required) and all(
            place > places["g"] or places.get(before, -1) < place < places.get(after, -1)
            for place, before, after in others
        )

    counts = collections.Counter[bool]()
    for seed in range(400):
        rng = random.Random(seed)
        names = [name for name in "abcdefgx" if name in required or rng.random() < 0.5]
        for _ in range(rng.randint(0, 2)):
            names.insert(rng.randrange(len(names)), names.pop(rng.randrange(len(names))))
        expected = in_order("".join(names))
        assert engine.accepts(json.dumps(dict.fromkeys(names))) == expected, names
        counts[expected] += 1
    assert min(counts.values()) > 100, counts
    state = engine.initial()
    for byte in b'{"b": null, "':
        state = engine.append(state, byte)
    assert engine.row(state) == ([ord("c")], False)


def test_order_of_required_where_names_are_sorted(engine: Engine) -> None:
    """Programs that sort the names of properties keep the order of lists, so both orders may be meant."""
    schema = {"type": "object", "properties": {name: {"type": "null"} for name in "abcd"}}
    closed = {**schema, "additionalProperties": False}

    def accepted() -> set[str]:
        orders = [*itertools.permutations("abcd"), *itertools.permutations("abd")]
        return {"".join(names) for names in orders if engine.accepts(json.dumps(dict.fromkeys(names)))}

    for some in (closed, schema):
        engine.compile({**some, "required": ["d", "a", "c", "b"]})
        assert accepted() == {"abcd", "dacb"}
    engine.compile({**closed, "required": ["d", "a", "b"]})
    assert accepted() == {"abd", "abcd", "abdc", "dab", "dacb", "dabc"}
    engine.compile({**closed, "required": ["d", "a", "b"], "maxProperties": 3})
    assert accepted() == {"abd", "dab"}
    unsorted = dict(reversed(schema["properties"].items()))
    engine.compile({**closed, "properties": unsorted, "required": ["a", "c", "b", "d"]})
    assert accepted() == {"dcba"}
    engine.compile({**closed, "required": ["d", "a", "b"]}, any_order=True)
    assert len(accepted()) == 24 + 6


@pytest.mark.parametrize("counts", [{"minProperties": 2}, {"maxProperties": 2}])
def test_late_properties_are_counted(engine: Engine, counts: dict[str, int]) -> None:
    engine.compile({**PAGING, **counts})
    assert engine.accepts('{"page": 0, "limit": 5}') and engine.accepts('{"x": 0, "limit": 5}')
    assert engine.accepts('{"page": 0}') == ("maxProperties" in counts)
    assert engine.accepts('{"page": 0, "x": 1, "limit": 5}') == ("minProperties" in counts)


def test_a_property_that_violates_a_schema_keeps_the_order(engine: Engine) -> None:
    engine.compile({**PAGING, "not": {"additionalProperties": {"type": "integer"}}})
    assert engine.accepts('{"limit": 5, "page": 0, "x": "a"}')
    assert not engine.accepts('{"page": 0, "limit": 5, "x": "a"}')


def test_sets_of_a_long_text_are_forgotten(engine: Engine) -> None:
    """Each object of the text has other names in another order."""
    engine.compile({"type": "array", "items": many(60)}, any_order=True)
    rng = random.Random(1)
    state, used = engine.initial(), 0
    for number in range(300):
        names = ["v0", "v59", *rng.sample([f"v{i}" for i in range(1, 59)], 9)]
        rng.shuffle(names)
        for byte in (("[" if number == 0 else ", ") + json.dumps(dict.fromkeys(names))).encode():
            state = engine.append(state, byte)
            assert state, number
        state = engine.compact(state)
        if number == 150:
            used = engine.memory()
    assert engine.memory() < 1.2 * used
    assert engine.row(engine.append(state, ord("]"))) == ([], True)
