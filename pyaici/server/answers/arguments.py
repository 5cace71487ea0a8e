"""Arguments in the schemas of tools: how a value is written and read, and its possible types."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import quote

from aicirt.contract.modules import finite_json

_SURROGATE = re.compile("[\ud800-\udfff]")
_TYPES: Mapping[type, tuple[str, ...]] = {
    str: ("string",),
    bool: ("boolean",),
    int: ("integer", "number"),
    float: ("number",),
    list: ("array",),
    dict: ("object",),
    type(None): ("null",),
}
_ALL = frozenset(name for names in _TYPES.values() for name in names)
#: most work to find the types of all arguments of a tool, and more for each argument: a schema visited, a
#: value listed in it and a character of a reference count one each
_BASE_WORK, _WORK_EACH = 1 << 12, 1 << 5


def read_json(text: str) -> Any:
    """Parses JSON in a model's or client's text into a value that can be written again as UTF-8.

    Half of a surrogate pair is not a character: an escaped one, such as ``"\\ud800"``, becomes U+FFFD. Raises
    ValueError for invalid JSON, and for values that are nested too deeply or too large.
    """
    try:
        value = finite_json(text)
        if "\\u" in text:
            written = json.dumps(value, ensure_ascii=False)
            whole = _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", written)
            value = value if whole == written else json.loads(whole)
        return value
    except RecursionError:
        raise ValueError("nested too deeply") from None


def guess_json(text: str) -> Any:
    """Returns the value of a text of unknown type: JSON, or the text itself."""
    try:
        return read_json(text)
    except ValueError:
        return text


class _Work:
    """The work that is left for the types of a tool's arguments, which share their definitions."""

    def __init__(self, most: int) -> None:
        self._left = most

    def spend(self, amount: int) -> bool:
        """Does so much work; returns False if there is not so much left."""
        self._left -= amount
        return self._left >= 0


@dataclass(frozen=True)
class Property:
    """An argument of a tool. `pointer`: place of its schema in `root`, the schema of all arguments."""

    name: str
    schema: Any
    required: bool
    pointer: str
    root: Mapping[str, Any]
    work: _Work = field(repr=False, compare=False)

    @cached_property
    def types(self) -> frozenset[str]:
        """JSON Schema's names of the types that a value may have; may have too many for complex schemas."""
        return _types(self.schema, self.root, (), self.work)

    @property
    def is_text(self) -> bool:
        """Whether all values are strings, which are written without quotes."""
        return self.types == {"string"}

    def written(self, value: Any) -> str:
        """Returns a value as it is written in a call."""
        return value if self.is_text and isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    def read(self, text: str) -> Any:
        """Returns the value of a written text.

        Text that no grammar has checked may have another type. The value is JSON of an allowed type, else a
        text if a string is allowed, else any JSON, else a text.
        """
        types = self.types
        if types == {"string"}:
            return text
        try:
            value = read_json(text)
        except ValueError:
            return text
        fits = not types.isdisjoint(_TYPES[type(value)])
        return text if "string" in types and not fits else value


def properties(schema: Mapping[str, Any]) -> list[Property]:
    """Returns the arguments of a tool, in the order of its schema. Follows a reference at the top."""
    pointer, top = arguments(schema)
    declared = top.get("properties")
    required = listed(top, "required")
    if not isinstance(declared, dict):
        return []
    work = _Work(_BASE_WORK + _WORK_EACH * len(declared))
    needed = {name for name in required if isinstance(name, str)}
    return [
        Property(name, inner, name in needed, f"{pointer}/properties/{_escaped(name)}", schema, work)
        for name, inner in declared.items()
    ]


def by_name(schema: Mapping[str, Any]) -> dict[str, Property]:
    """Returns the arguments of a tool by their names."""
    return {prop.name: prop for prop in properties(schema)}


def arguments(schema: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Returns (pointer, schema) of the object of all arguments, mostly the schema itself."""
    pointer, seen = "", set[str]()
    top: Any = schema
    while isinstance(top, dict) and "properties" not in top and isinstance(top.get("$ref"), str):
        reference = top["$ref"]
        found = at_pointer(schema, reference)
        if found is None or reference in seen:
            break
        seen.add(reference)
        pointer, top = reference[1:], found
    return pointer, top if isinstance(top, dict) else {}


def listed(schema: Mapping[str, Any], keyword: str) -> list[Any]:
    """Returns the list of a keyword; an empty one if the keyword is absent or has no list."""
    found = schema.get(keyword)
    return found if isinstance(found, list) else []


def at_pointer(root: Any, reference: str) -> Any:
    """Returns what a reference such as ``#/$defs/a`` refers to; None if there is nothing."""
    if not reference.startswith("#") or (len(reference) > 1 and reference[1] != "/"):
        return None
    for step in reference.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(root, dict) and key in root:
            root = root[key]
        elif isinstance(root, list) and key.isdecimal() and int(key) < len(root):
            root = root[int(key)]
        else:
            return None
    return root


def has_references(schema: Any) -> bool:
    """Tells whether a schema has references, which may lead out of it."""
    return any(key in ("$ref", "$dynamicRef", "$recursiveRef") for key in _keys(schema))


def embedded(schema: Mapping[str, Any], number: int = 0) -> dict[str, Any]:
    """Returns a schema as a document of its own in another one: its references lead to places in itself.

    `number`: different for each schema in the other one. For our engine, a schema that states its draft is
    such a document, like one with an identifier, which has no effect beside `$ref` in drafts before 2019.
    """
    return dict(schema) if "$schema" in schema else {"$id": f"tool:{number}", **schema}


def standalone(prop: Property) -> tuple[Any, tuple[str, str]]:
    """Returns a self-contained schema of one argument, and (old, new) beginning of JSON pointers into it.

    References may lead anywhere in the schema of all arguments, so that schema is included.
    """
    if not has_references(prop.schema):
        if not isinstance(prop.schema, dict):
            return prop.schema, ("", prop.pointer)
        dialect = {key: prop.root[key] for key in ("$schema",) if key in prop.root}
        return {**dialect, **prop.schema}, ("", prop.pointer)
    place = "/$defs/all"
    return {"$ref": f"#{place}{quote(prop.pointer)}", "$defs": {"all": embedded(prop.root)}}, (place, "")


def _keys(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        yield from schema
    children = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    for child in children:
        yield from _keys(child)


def _types(schema: Any, root: Mapping[str, Any], seen: tuple[str, ...], work: _Work) -> frozenset[str]:
    types = _ALL
    if not isinstance(schema, dict):
        work.spend(1)
        return types
    named, enum, reference = schema.get("type"), listed(schema, "enum"), schema.get("$ref")
    if isinstance(named, str):
        types &= frozenset({named, "integer"} if named == "number" else {named})
    # definitions that refer to each other twice, level by level, have exponentially many paths
    if not work.spend(
        1 + sum(len(some) for some in (named, enum, reference) if isinstance(some, str | list))
    ):
        return types
    if isinstance(named, list):
        types &= frozenset(str(name) for name in named) | ({"integer"} if "number" in named else set())
    if "const" in schema:
        types &= frozenset(_TYPES[type(schema["const"])])
    if enum:
        types &= _union(frozenset(_TYPES[type(value)]) for value in enum)
    for part in listed(schema, "allOf"):
        types &= _types(part, root, seen, work)
    for keyword in ("anyOf", "oneOf"):
        if parts := listed(schema, keyword):
            types &= _union(_types(part, root, seen, work) for part in parts)
    if isinstance(reference, str) and reference not in seen:
        target = at_pointer(root, reference)
        types &= _ALL if target is None else _types(target, root, (*seen, reference), work)
    return types


def _union(parts: Iterator[frozenset[str]]) -> frozenset[str]:
    return frozenset(name for part in parts for name in part)


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
