"""Values of random schemas: the texts of the valid ones are accepted, those of the others are not."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from jsonschema import Draft202012Validator

from lab.oracles.json_schema.orders import ways
from lab.oracles.json_schema.schema_engine import Engine
from lab.oracles.json_schema.schemas import Schemas

#: what docs/json_schema.md says is less than the schema allows
LOSSY = ("minProperties", "unevaluatedProperties", "unevaluatedItems")


def mentions(schema: Any, names: tuple[str, ...]) -> bool:
    text = json.dumps(schema)
    return any(f'"{name}"' in text for name in names)


def compare_values(
    engine: Engine, source: Schemas, schema: Any, count: int
) -> tuple[Counter[str], list[str]]:
    """Compares values with the schema that the engine holds. Returns counts of values, and what is wrong.

    Valid values are accepted in one order of their properties, invalid values in none.
    """
    validator, counts, flaws = Draft202012Validator(schema), Counter[str](), []
    for _ in range(count):
        value = source.value(schema)
        valid = validator.is_valid(value)
        texts = ways(value, 800)
        accepted = any(engine.accepts(text) for text in texts)
        counts["valid" if valid else "invalid"] += 1
        if accepted != valid and (accepted or not mentions(schema, LOSSY)):
            flaws.append(
                f"{json.dumps(value)} is {'valid' if valid else 'invalid'}, and our masks say otherwise"
            )
    return counts, flaws
