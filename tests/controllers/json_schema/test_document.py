"""Every row of the tables of docs/json_schema.md holds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from lab.oracles.json_schema.schema_engine import Engine, Refused

DOCUMENT = (Path(__file__).resolve().parents[3] / "docs" / "json_schema.md").read_text()


def table(heading: str) -> list[list[str]]:
    """The cells of the table with this first line, row by row."""
    rows = DOCUMENT.split(f"\n{heading}\n")[1].split("\n\n")[0].splitlines()[1:]
    return [
        [cell.strip() for cell in row.split(" | ")] for row in (row[2:].removesuffix("|") for row in rows)
    ]


def codes(cell: str) -> list[str]:
    return re.findall(r"`([^`]*)`", cell)


ENFORCED = table("| schema | allows | does not allow |")
REFUSED = table("| schema | reason |")


@pytest.mark.parametrize(("schema", "allowed", "others"), ENFORCED)
def test_what_is_enforced(engine: Engine, schema: str, allowed: str, others: str) -> None:
    engine.compile(codes(schema)[0])
    for text in codes(allowed):
        assert engine.accepts(text), text
    for text in codes(others):
        assert not engine.accepts(text), text


def test_the_tables_are_read() -> None:
    assert len(ENFORCED) > 45
    assert all(codes(allowed) for _, allowed, _ in ENFORCED)
    assert len(REFUSED) > 15


@pytest.mark.parametrize(("schema", "reason"), REFUSED)
def test_what_is_refused(engine: Engine, schema: str, reason: str) -> None:
    with pytest.raises(Refused) as caught:
        engine.compile(codes(schema)[0])
    assert codes(reason)[0] in str(caught.value)


@pytest.mark.parametrize("schema", [row[0] for row in REFUSED[-6:]])
def test_invalid_schemas_are_refused_even_with_warn(engine: Engine, schema: str) -> None:
    with pytest.raises(Refused):
        engine.compile(codes(schema)[0], warn=True)


@pytest.mark.parametrize(
    ("draft", "keywords"),
    [
        ("draft-04", {"if": True, "then": False}),
        ("draft-04", {"if": {"type": "object"}, "else": False}),
        ("draft-06", {"if": True, "then": False}),
        ("draft-04", {"const": 2}),
        ("draft-04", {"contains": False, "propertyNames": False}),
        ("draft-07", {"dependentSchemas": {"a": False}, "dependentRequired": {"a": ["c"]}}),
        ("draft-07", {"unevaluatedProperties": False, "unevaluatedItems": False}),
        ("draft-07", {"prefixItems": [False]}),
    ],
)
def test_keywords_of_later_drafts_are_ignored(engine: Engine, draft: str, keywords: dict[str, Any]) -> None:
    for schema in (keywords, {"not": {"not": keywords}}):
        engine.compile({"$schema": f"http://json-schema.org/{draft}/schema#", **schema})
        for text in ("1", '{"a": 1}', "[1, 2]"):
            assert engine.accepts(text), (schema, text)
