"""multipleOf and its opposite, with bounds: every number of some digits, compared with exact arithmetic."""

from __future__ import annotations

import itertools
import json
import random
from decimal import Decimal
from typing import Any

import pytest

from lab.oracles.json_schema.schema_engine import Engine, Refused

SIGNS = ["", "-"]
WHOLE = ["0", "1", "2", "3", "6", "7", "9", "10", "12", "14", "21", "35", "70", "99", "100", "105", "1001"]
BEHIND = [
    "",
    ".0",
    ".1",
    ".2",
    ".3",
    ".4",
    ".5",
    ".7",
    ".75",
    ".05",
    ".07",
    ".14",
    ".50",
    ".700",
    ".125",
    ".999",
]


def expected(schema: dict[str, Any], text: str) -> bool:
    """Follows the specification, in the spelling of docs/json_schema.md: integers have no fraction."""
    number = Decimal(text)
    integers = schema["type"] == "integer" or isinstance(schema.get("multipleOf"), int)
    if integers and "." in text:
        return False
    for name, fits in (
        ("minimum", lambda bound: number >= bound),
        ("maximum", lambda bound: number <= bound),
        ("multipleOf", lambda bound: number % bound == 0),
    ):
        if name in schema and not fits(Decimal(repr(schema[name]))):
            return False
    return not any(number % Decimal(repr(no["multipleOf"])) == 0 for no in schema.get("allOf", []))


@pytest.mark.parametrize("kind", ["integer", "number"])
@pytest.mark.parametrize(
    "rest",
    [
        {"multipleOf": 7},
        {"multipleOf": 0.7},
        {"multipleOf": 1.5},
        {"multipleOf": 0.35, "minimum": 2},
        {"multipleOf": 3, "minimum": -12, "maximum": 1000},
        {"multipleOf": 1001},
        {"multipleOf": 0.075},
        {"no": [2]},
        {"no": [3, 0.7]},
        {"no": [1.5], "maximum": 99},
        {"multipleOf": 0.1, "no": [0.7], "minimum": -70},
    ],
    ids=json.dumps,
)
def test_multiples(engine: Engine, kind: str, rest: dict[str, Any]) -> None:
    schema: dict[str, Any] = {"type": kind, **rest}
    if "no" in schema:
        schema["allOf"] = [{"multipleOf": divisor} for divisor in schema.pop("no")]
        written = {**schema, "allOf": [{"not": no} for no in schema["allOf"]]}
    else:
        written = schema
    engine.compile(written)
    found = 0
    for parts in itertools.product(SIGNS, WHOLE, BEHIND):
        text = "".join(parts)
        assert engine.accepts(text) == expected(schema, text), text
        found += expected(schema, text)
    assert found
    assert not any(engine.accepts(text) for text in ("7e0", "1.", ".7", "07", "-", "", '"7"', "null"))


def test_numbers_that_are_not_integers(engine: Engine) -> None:
    engine.compile({"type": "number", "not": {"multipleOf": 1}})
    assert engine.accepts("0.5") and engine.accepts("-12.30") and not engine.accepts("2.00")
    with pytest.raises(Refused, match=r"no value meets this schema$"):
        engine.compile({"type": "integer", "not": {"multipleOf": 0.5}})


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "multipleOf": 1_000_003},
        {"type": "number", "multipleOf": 1e-30},
        {"type": "number", "not": {"multipleOf": 123456789012345678901}},
        {"type": "integer", "allOf": [{"multipleOf": 97}, {"multipleOf": 101}]},
    ],
)
def test_too_many_remainders(engine: Engine, schema: dict[str, Any]) -> None:
    with pytest.raises(Refused, match="too many remainders"):
        engine.compile(schema)
    assert any("too many remainders" in warning for warning in engine.compile(schema, warn=True))


def test_wrong_divisors(engine: Engine) -> None:
    for divisor in (0, -2, "2"):
        with pytest.raises(Refused, match="a number"):
            engine.compile({"not": {"multipleOf": divisor}}, warn=True)


@pytest.mark.parametrize(
    "divisor", ["86400", "4096", "3600000", "86400000", "1e10", "0.0064", "1250", "99000"]
)
@pytest.mark.parametrize("excluded", [False, True])
def test_large_divisors_with_factors_of_ten(engine: Engine, divisor: str, excluded: bool) -> None:
    """Few of their remainders differ in the digits that may follow, however many there are."""
    keywords = f'"not": {{"multipleOf": {divisor}}}' if excluded else f'"multipleOf": {divisor}'
    engine.compile(f'{{"type": "number", {keywords}}}')
    of, rng = Decimal(divisor), random.Random(divisor)
    for _ in range(60):
        number = of * rng.randrange(10 ** rng.randrange(1, 9))
        for other in (number, -number, number + 1, number + of / 2, number + of.scaleb(-1), number * 10 + of):
            text = f"{other:f}"
            if divisor == "0.0064" or "." not in text or excluded:
                assert engine.accepts(text) == ((other % of == 0) != excluded), text
