"""The JSON schema of a tool with fifty properties, as applications give to models."""

from __future__ import annotations

from typing import Any

#: repeated ten times, with a number after the names
_PROPERTIES: dict[str, Any] = {
    "title": {"type": "string", "minLength": 1, "maxLength": 80, "description": "A short title."},
    "count": {"type": "integer", "minimum": 0, "maximum": 10_000},
    "state": {"type": "string", "enum": ["open", "waiting", "in progress", "done"]},
    "labels": {"type": "array", "items": {"type": "string", "pattern": "^[a-z][a-z0-9-]*$"}, "maxItems": 8},
    "owner": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "email": {"type": "string", "format": "email"}},
        "required": ["name"],
        "additionalProperties": False,
    },
}


def tool_schema(properties: int = 50) -> dict[str, Any]:
    """Returns a schema in which every fifth property is required."""
    kinds = list(_PROPERTIES.items())
    known = {f"{kinds[i % 5][0]}_{i // 5}": kinds[i % 5][1] for i in range(properties)}
    return {
        "type": "object",
        "properties": known,
        "required": [name for name in known if name.startswith("title")],
        "additionalProperties": False,
    }
