"""Generates valid and invalid instances of JSON schemas, reproducibly from a seed."""

from __future__ import annotations

import random
import re
import string
from collections.abc import Sequence
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

import jsonschema
from referencing.exceptions import Unresolvable

_DEEPEST = 6
_WORDS = ("alpha", "beta", "north", "primary", "web-server", "eu-west-1", "2026", "x", "internal use")
_FORMATS = {
    "date-time": "2026-11-20T15:30:00Z",
    "date": "2026-11-20",
    "time": "15:30:00Z",
    "uri": "https://example.org/a/b?c=d",
    "email": "someone@example.org",
    "hostname": "www.example.org",
    "ipv4": "192.0.2.17",
    "ipv6": "2001:db8::1",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
}


class NoInstance(Exception):
    """No instance was found."""


def valid_instance(schema: Any, seed: int, attempts: int = 8) -> Any:
    """Returns an instance that jsonschema accepts, with the properties in the schema's order.

    Raises NoInstance if it finds none.
    """
    validator = _validator(schema)
    for attempt in range(attempts):
        maker = _Maker(schema, random.Random(seed * 1000 + attempt), optional=0.6 / (attempt + 1))
        try:
            instance = maker.make(schema, 0)
            if validator.is_valid(instance):
                return instance
        except (NoInstance, RecursionError, re.error, Unresolvable):
            continue
    raise NoInstance


def invalid_instance(schema: Any, seed: int, attempts: int = 8) -> Any:
    """Returns an instance that jsonschema refuses: a valid one in which one value was removed or replaced.

    Raises NoInstance if it finds none.
    """
    validator, rng = _validator(schema), random.Random(seed)
    for _ in range(attempts):
        instance = _changed(valid_instance(schema, seed, attempts), rng)
        if not validator.is_valid(instance):
            return instance
    raise NoInstance


def _validator(schema: Any) -> Any:
    return jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)(schema)


def _changed(value: Any, rng: random.Random, deeper: float = 1.0) -> Any:
    """Returns a copy of a value with one change, often deep inside: `deeper` is the probability."""
    if value and isinstance(value, dict | list) and rng.random() < deeper:
        made: Any = value.copy()
        place = rng.choice(list(made) if isinstance(made, dict) else range(len(made)))
        if rng.random() < 0.4:
            del made[place]
        else:
            made[place] = _changed(made[place], rng, 0.8)
        return made
    return rng.choice([other for other in (None, True, -7.25, "?", ["?"], {"?": 1}) if other != value])


class _Maker:
    def __init__(self, root: Any, rng: random.Random, optional: float) -> None:
        self._root, self._rng, self._optional = root, rng, optional

    def make(self, schema: Any, depth: int) -> Any:
        if schema is True or schema == {}:
            return self._rng.choice(_WORDS)
        if schema is False or depth > 2 * _DEEPEST:
            raise NoInstance
        schema = self._flat(schema)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self._rng.choice(schema["enum"])
        kinds = schema.get("type", _kind_of(schema))
        kind = self._rng.choice(kinds) if isinstance(kinds, list) else kinds
        made = {
            "object": self._object,
            "array": self._array,
            "string": self._string,
            "integer": self._number,
            "number": self._number,
        }
        if kind in made:
            return made[kind](schema, depth)
        return None if kind == "null" else self._rng.random() < 0.5

    def _flat(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Replaces references and alternatives by the schemas that they stand for."""
        for _ in range(20):
            if "$ref" in schema:
                parts: list[Any] = [self._resolve(schema["$ref"])]
            elif found := next((k for k in ("anyOf", "oneOf") if schema.get(k)), None):
                parts = [self._rng.choice(schema[found])]
            elif schema.get("allOf"):
                found, parts = "allOf", schema["allOf"]
            else:
                return schema
            drop = "$ref" if "$ref" in schema else found
            schema = {key: value for key, value in schema.items() if key != drop}
            for part in parts:
                if not isinstance(part, dict):
                    raise NoInstance
                schema = _merged(schema, part)
        raise NoInstance

    def _resolve(self, reference: str) -> Any:
        if not reference.startswith("#"):
            raise NoInstance
        found = self._root
        for step in reference[1:].split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            found = found[int(step)] if isinstance(found, list) else found.get(step)
            if found is None:
                raise NoInstance
        return found

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        required = schema.get("required", [])
        required = required if isinstance(required, list) else []
        known = schema.get("properties", {})
        made: dict[str, Any] = {}
        for name in [*known, *(name for name in required if name not in known)]:
            if name not in required and (depth >= _DEEPEST or self._rng.random() >= self._optional):
                continue
            try:
                made[name] = self.make(known.get(name, self._other(schema, name)), depth + 1)
            except NoInstance:
                if name in required:
                    raise
        return made

    def _other(self, schema: dict[str, Any], name: str) -> Any:
        for pattern, part in schema.get("patternProperties", {}).items():
            if re.search(pattern, name):
                return part
        return schema.get("additionalProperties", True)

    def _array(self, schema: dict[str, Any], depth: int) -> list[Any]:
        least = schema.get("minItems", 0)
        wanted = 0 if depth >= _DEEPEST else self._rng.randint(0, 3)
        count = max(least, min(schema.get("maxItems", 3), wanted))
        first = schema.get("prefixItems", [])
        rest = schema.get("items", True)
        if isinstance(rest, list):
            first, rest = rest, schema.get("additionalItems", True)
        made = [self.make(first[i] if i < len(first) else rest, depth + 1) for i in range(min(count, 40))]
        if schema.get("uniqueItems"):
            made = [item for i, item in enumerate(made) if item not in made[:i]]
        return made

    def _string(self, schema: dict[str, Any], depth: int) -> str:
        if "pattern" in schema:
            made = self._text(_parser.parse(schema["pattern"]))
        elif schema.get("format") in _FORMATS:
            made = _FORMATS[schema["format"]]
        else:
            made = self._rng.choice(_WORDS)
        while len(made) < schema.get("minLength", 0):
            made += self._rng.choice(string.ascii_lowercase)
        return made[: schema.get("maxLength")]

    def _number(self, schema: dict[str, Any], depth: int) -> float:
        low = schema.get("minimum", schema.get("exclusiveMinimum", -1 if "maximum" in schema else 0))
        high = schema.get("maximum", low + 1000)
        step = schema.get("multipleOf", 1)
        return int(-(-self._rng.randint(int(low), max(int(low), int(high))) // step * step))

    def _text(self, parsed: Sequence[tuple[Any, Any]]) -> str:
        """Returns a text that matches a parsed pattern of `re`."""
        made = ""
        for code, value in parsed:
            if code is codes.LITERAL:
                made += chr(value)
            elif code in (codes.ANY, codes.NOT_LITERAL):
                made += self._rng.choice([c for c in "abcdefgh" if code is codes.ANY or ord(c) != value])
            elif code is codes.IN:
                made += self._one_of(value)
            elif code is codes.BRANCH:
                made += self._text(self._rng.choice(value[1]))
            elif code is codes.SUBPATTERN:
                made += self._text(value[3])
            elif code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
                low, high, inner = value
                for _ in range(max(low, min(high, low + self._rng.randint(0, 6)))):
                    made += self._text(inner)
            elif code is not codes.AT:
                raise NoInstance
        return made

    def _one_of(self, items: Sequence[tuple[Any, Any]]) -> str:
        pattern = [(codes.IN, list(items))]
        known = [c for c in string.ascii_letters + string.digits + "-_./: " if _matches(pattern, c)]
        if not known:
            known = [chr(v if c is codes.LITERAL else v[0]) for c, v in items if c is not codes.NEGATE]
        return self._rng.choice(known)


def _kind_of(schema: dict[str, Any]) -> str:
    """Returns the most likely type of a schema without a type."""
    kinds = {"object": ("properties", "required", "patternProperties"), "array": ("items", "minItems")}
    return next((kind for kind, keys in kinds.items() if any(key in schema for key in keys)), "string")


def _merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    made = {**one, **other}
    for key in ("properties", "required"):
        if key in one and key in other:
            made[key] = {**one[key], **other[key]} if key == "properties" else [*one[key], *other[key]]
    return made


def _matches(parsed: Sequence[tuple[Any, Any]], character: str) -> bool:
    """Returns whether a bracketed class contains the character."""
    ((_, items),) = parsed
    negated, found, code = False, False, ord(character)
    for kind, value in items:
        if kind is codes.NEGATE:
            negated = True
        elif kind is codes.LITERAL:
            found |= code == value
        elif kind is codes.RANGE:
            found |= value[0] <= code <= value[1]
        elif kind is codes.CATEGORY:
            found |= _CATEGORIES[value](character)
    return found != negated


_CATEGORIES = {
    codes.CATEGORY_DIGIT: lambda c: c.isdigit(),
    codes.CATEGORY_NOT_DIGIT: lambda c: not c.isdigit(),
    codes.CATEGORY_SPACE: lambda c: c.isspace(),
    codes.CATEGORY_NOT_SPACE: lambda c: not c.isspace(),
    codes.CATEGORY_WORD: lambda c: c.isalnum() or c == "_",
    codes.CATEGORY_NOT_WORD: lambda c: not (c.isalnum() or c == "_"),
}
