"""Random schemas: exactly the values that `jsonschema` accepts can be written."""

from __future__ import annotations

import collections
import json
import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from lab.oracles.json_schema.schema_engine import COMPACT, SPACED, Engine, Refused
from lab.oracles.json_schema.schemas import ObjectSchemas, Schemas
from lab.oracles.json_schema.values import compare_values


@pytest.mark.parametrize("kind", [Schemas, ObjectSchemas])
@pytest.mark.parametrize("seed", range(2))
def test_values(engine: Engine, seed: int, kind: type[Schemas]) -> None:
    """Valid values are accepted in one order of their properties, invalid values in none."""
    counts = collections.Counter[str]()
    for number in range(250):
        rng = random.Random(seed * 1000 + number)
        source = kind(rng)
        schema = source.schema()
        try:
            engine.compile(schema, SPACED)
        except Refused as refused:
            counts["unsatisfiable" if "no value meets" in str(refused) else "refused"] += 1
            if "no value meets" in str(refused):
                for _ in range(5):
                    assert not Draft202012Validator(schema).is_valid(source.value(schema)), schema
            continue
        found, flaws = compare_values(engine, source, schema, 15)
        assert not flaws, flaws
        counts += found
    assert counts["valid"] > 300 and counts["invalid"] > 300, counts
    assert counts["refused"] < 60, counts


def walk(engine: Engine, rng: random.Random) -> bytes | None:
    """Returns a random text made of allowed bytes; None if it does not reach an end."""
    state, text = engine.initial(), bytearray()
    for size in range(2000):
        if rng.random() < 0.4 and engine.may_end(state):
            return bytes(text)
        hurry = rng.random() < (0.3 if size < 300 else 0.9)
        # asking about some bytes is faster than a row, and as random if one of them is allowed
        closing = bytes(rng.sample(b'"]}', 3)) if hurry else b""
        byte = engine.first_allowed(state, closing + rng.randbytes(8))
        if byte is None:
            allowed, may_end = engine.row(state)
            assert allowed or may_end, bytes(text)
            if not allowed:
                return bytes(text)
            byte = rng.choice(allowed)
        text.append(byte)
        state = engine.compact(engine.append(state, byte))
    return None


def finished_walks(
    engine: Engine, make: Callable[[random.Random], Any], seeds: Iterable[int], whitespace: int = COMPACT
) -> int:
    """Writes texts of random schemas, which must be valid. Returns the number of complete texts."""
    finished = 0
    for seed in seeds:
        rng = random.Random(seed)
        schema = make(rng)
        try:
            engine.compile(schema, whitespace)
        except Refused:
            continue
        validator = Draft202012Validator(schema)
        for _ in range(4):
            text = walk(engine, rng)
            if text is not None:
                finished += 1
                assert validator.is_valid(json.loads(text)), (schema, text)
    return finished


@pytest.mark.parametrize("kind", [Schemas, ObjectSchemas])
@pytest.mark.parametrize("seed", range(1))
def test_walks(engine: Engine, seed: int, kind: type[Schemas]) -> None:
    """Every text that can be written is valid."""
    seeds = range(seed * 1000, seed * 1000 + 150)
    assert finished_walks(engine, lambda rng: kind(rng).schema(), seeds) > 300
