"""Bounds of numbers: spellings of some numbers between any two bounds, compared with exact arithmetic."""

from __future__ import annotations

import itertools
import json
from decimal import Decimal
from typing import Any

import pytest

from lab.oracles.json_schema.schema_engine import Engine

BOUNDS = ["-5", "-0.5", "-0.0", "-0", "0", "0.0", "0e9", "0.25", "12.0"]
WHOLE = ["0", "1", "5", "12"]
BEHIND = ["", ".0", ".25", ".3", ".50"]
POWERS = ["", "e0", "E-12"]
SPELLINGS = ["".join(parts) for parts in itertools.product(["", "-"], WHOLE, BEHIND, POWERS)]
COMPARE = {
    "minimum": lambda number, bound: number >= bound,
    "exclusiveMinimum": lambda number, bound: number > bound,
    "maximum": lambda number, bound: number <= bound,
    "exclusiveMaximum": lambda number, bound: number < bound,
}
LOW, HIGH = (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum"))


DOUBLE, LONG = "1.7976931348623157e308", "9" * 64


@pytest.mark.parametrize("kind", ["number", "integer"])
def test_bounds_with_many_digits(engine: Engine, kind: str) -> None:
    """Beside the greatest double, numbers have at most 64 digits."""
    engine.compile(f'{{"type": "{kind}", "minimum": -{DOUBLE}, "maximum": {DOUBLE}}}')
    for text in ("0", "-1", LONG, f"-{LONG}", "1" + "0" * 64):
        assert engine.accepts(text), text
    assert engine.accepts("-0.25") == (kind == "number") and not engine.accepts("1" + LONG)
    engine.compile(f'{{"type": "{kind}", "minimum": 3, "exclusiveMaximum": {DOUBLE}}}')
    assert engine.accepts("3") and engine.accepts(LONG) and not engine.accepts("2")
    engine.compile(f'{{"type": "{kind}", "minimum": -{DOUBLE}, "maximum": -3}}')
    assert engine.accepts("-3") and not engine.accepts("-2") and not engine.accepts("3")
    engine.compile(f'{{"type": "{kind}", "minimum": 1e70, "maximum": 2e70}}')
    assert engine.accepts("1" + "5" * 70) and not engine.accepts(LONG) and not engine.accepts("-" + LONG)


def schemas(kind: str) -> list[str]:
    """Returns schemas as text, since Python would write some bounds in another way."""
    low = [f'"{name}": {bound}' for name in LOW for bound in BOUNDS]
    high = [f'"{name}": {bound}' for name in HIGH for bound in BOUNDS]
    both = itertools.islice(itertools.product(low, high), 0, None, 13)
    return [f'{{"type": "{kind}", {keywords}}}' for keywords in (*low, *high, *map(", ".join, both))]


def fits(schema: dict[str, Any], text: str) -> bool:
    number = Decimal(text)
    bounds = ((COMPARE[name], Decimal(str(schema[name]))) for name in COMPARE if name in schema)
    return all(compare(number, bound) for compare, bound in bounds)


@pytest.mark.parametrize("kind", ["integer", "number"])
def test_spellings_of_a_number_within_bounds(engine: Engine, kind: str) -> None:
    """Zero and numbers with no bound but 0 may have exponents; integers are digits: docs/json_schema.md."""
    for written in schemas(kind):
        schema = json.loads(written, parse_float=Decimal)
        wanted = [text for text in SPELLINGS if fits(schema, text)]
        if kind == "integer":
            wanted = [text for text in wanted if text.lstrip("-").isdigit()]
        elif Decimal(str(schema.get("minimum", 1))) != 0 or len(schema) > 2:
            wanted = [text for text in wanted if "e" not in text.lower() or Decimal(text) == 0]
        if not wanted:
            continue
        engine.compile(written)
        assert [text for text in SPELLINGS if engine.accepts(text)] == wanted, written


@pytest.mark.parametrize("schema", [{"const": 0}, {"enum": [-0.0, "a"]}, {"const": 0.0, "type": "integer"}])
def test_zero_as_a_value_may_have_a_sign(engine: Engine, schema: dict[str, Any]) -> None:
    engine.compile(schema)
    assert [text for text in ("0", "0.0", "-0", "-0.0", "1", "-1", "-") if engine.accepts(text)] == [
        *("0", "0.0", "-0", "-0.0")
    ]


@pytest.mark.parametrize("order", ["minimum", "maximum"])
def test_zero_that_is_excluded_has_no_spelling(engine: Engine, order: str) -> None:
    engine.compile({"type": "number", "not": {"const": 0}, order: 0})
    assert not any(engine.accepts(text) for text in ("0", "-0", "0.0", "-0.0", "0e3", "-0e3"))
    assert engine.accepts("0.5" if order == "minimum" else "-0.5")
