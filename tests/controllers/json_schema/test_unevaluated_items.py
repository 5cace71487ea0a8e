"""`unevaluatedItems` next to `contains`: items that meet `contains` are evaluated."""

from __future__ import annotations

import collections
import itertools
import json
import random
from typing import Any

from jsonschema import Draft202012Validator

from lab.oracles.json_schema.schema_engine import Engine, Refused

SCHEMAS: list[Any] = [
    {"type": "string"},
    {"type": "integer"},
    {"const": 6},
    {"multipleOf": 2},
    {"type": "number"},
]
VALUES = [1, 2, 6, "a", None]


def schema(rng: random.Random) -> dict[str, Any]:
    def contains() -> dict[str, Any]:
        made: dict[str, Any] = {"contains": rng.choice(SCHEMAS)}
        if rng.random() < 0.4:
            made["minContains"] = rng.randint(0, 2)
        if rng.random() < 0.3:
            made["maxContains"] = rng.randint(1, 3)
        return made

    made = {"type": "array", "unevaluatedItems": rng.choice([False, *SCHEMAS])}
    if rng.random() < 0.7:
        made |= contains()
    if rng.random() < 0.4:
        made["prefixItems"] = [rng.choice([True, *SCHEMAS])]
    more = [
        {},
        {"allOf": [contains(), contains()]},
        {"if": contains(), "then": contains()},
        {"anyOf": [contains()]},
    ]
    return made | rng.choice([*more, {"not": contains()}])


def test_values(engine: Engine) -> None:
    counts = collections.Counter[bool]()
    refused = 0
    for seed in range(60):
        made = schema(random.Random(seed))
        validator = Draft202012Validator(made)
        try:
            engine.compile(made)
        except Refused:
            refused += 1
            continue
        for size in range(4):
            for value in itertools.product(VALUES, repeat=size):
                valid = validator.is_valid(list(value))
                accepted = engine.accepts(json.dumps(list(value)))
                assert accepted <= valid, (made, value)
                # alternatives consider only what they need
                assert accepted == valid or "if" in made, (made, value)
                counts[accepted] += 1
    assert counts[True] > 800 and counts[False] > 2000 and refused < 16, (counts, refused)
