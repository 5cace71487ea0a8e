"""`minProperties`: exactly the objects with enough different names can be written."""

from __future__ import annotations

import collections
import random
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from lab.oracles.json_schema.orders import ways
from lab.oracles.json_schema.schema_engine import SPACED, Engine, Refused
from tests.controllers.json_schema.test_random import finished_walks

NAMES = ["a", "b", "c", "x-1", "x-2", "é", 'q"', ""]
VALUES: list[Any] = [True, {"type": "integer"}, {"type": "string"}, {"enum": [1, "a", None]}]
PATTERNS = ["^x-", "^[a-d]$", "^.$", "1"]


def schema(rng: random.Random) -> dict[str, Any]:
    names = rng.sample(NAMES, rng.randint(0, 3))
    made: dict[str, Any] = {"type": "object", "properties": {name: rng.choice(VALUES) for name in names}}
    made["minProperties"] = rng.randint(1, 4)
    if rng.random() < 0.4:
        made["patternProperties"] = {
            one: rng.choice(VALUES) for one in rng.sample(PATTERNS, rng.randint(1, 2))
        }
    if rng.random() < 0.4:
        made["additionalProperties"] = rng.choice([False, *VALUES])
    if rng.random() < 0.3:
        made["required"] = rng.sample(NAMES, rng.randint(1, 2))
    if rng.random() < 0.3:
        made["maxProperties"] = rng.randint(made["minProperties"], 5)
    if rng.random() < 0.2:
        made["not"] = {"additionalProperties": {"type": "string"}}
    elif rng.random() < 0.4:
        some: list[dict[str, Any]] = [
            {"enum": rng.sample(NAMES, 4)},
            {"maxLength": 1},
            {"not": {"const": "a"}},
        ]
        made["propertyNames"] = rng.choice([*some, {"pattern": rng.choice(PATTERNS)}])
    return made


@pytest.mark.parametrize("seed", range(2))
def test_values(engine: Engine, seed: int) -> None:
    """Valid values are accepted in one order of their properties, invalid values in none."""
    counts = collections.Counter[str]()
    for number in range(150):
        rng = random.Random(seed * 1000 + number)
        made = schema(rng)
        validator = Draft202012Validator(made)
        try:
            engine.compile(made, SPACED)
        except Refused as refused:
            counts["unsatisfiable" if "no value meets" in str(refused) else "refused"] += 1
            continue
        for _ in range(15):
            names = rng.sample(NAMES, rng.randint(0, 4))
            value = {name: rng.choice([0, 1, "a", None]) for name in names}
            valid = validator.is_valid(value)
            accepted = any(map(engine.accepts, ways(value)))
            assert accepted == valid, (made, value)
            counts["valid" if valid else "invalid"] += 1
    assert counts["valid"] > 150 and counts["invalid"] > 300, counts
    assert counts["refused"] < 30, counts


def test_walks(engine: Engine) -> None:
    """Every text that can be written is valid, and can be completed."""
    assert finished_walks(engine, schema, range(30)) > 40


def test_a_name_counts_once(engine: Engine) -> None:
    engine.compile({"type": "object", "minProperties": 2})
    assert engine.accepts('{"a": 1, "b": 1}')
    assert not engine.accepts('{"a": 1, "a": 2}')
    assert engine.accepts('{"a": {"a": ":,"}, "b": ["a", {"a": 1, "b": 2}]}')
