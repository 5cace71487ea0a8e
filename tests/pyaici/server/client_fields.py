"""Paths of all fields that a client's own types have, such as `messages[].content[].text`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typing_extensions
from pydantic import BaseModel

#: types whose arguments stand at the same place
_TRANSPARENT = (Union, UnionType, Annotated)


def paths(kind: Any, at: str = "", *, depth: int = 9) -> Iterator[str]:
    """Yields the paths of the fields of a TypedDict or a model of pydantic, down to so many levels."""
    fields: dict[str, Any] = {}
    if typing_extensions.is_typeddict(kind):
        fields = get_type_hints(kind)
    elif isinstance(kind, type) and issubclass(kind, BaseModel):
        fields = {name: field.annotation for name, field in kind.model_fields.items()}
    for name, inner in fields.items():
        path = f"{at}.{name}" if at else name
        yield path
        # a schema is not a part of the request: its keywords are those of JSON Schema
        yield from paths(inner, path, depth=depth - 1) if depth > 1 and name != "parameters" else ()
    origin = get_origin(kind)
    if not (origin is Literal or (isinstance(origin, type) and issubclass(origin, Mapping))):
        for inner in get_args(kind):
            yield from paths(inner, at if origin in _TRANSPARENT else f"{at}[]", depth=depth)
