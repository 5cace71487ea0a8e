"""The ways to order the properties of a value."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

#: objects with these keywords may keep the order of the schema: some property must violate a schema
NEGATED = ("not", "oneOf", "if")


def orders(value: Any) -> Iterator[Any]:
    """Yields the value with the properties of its objects in every order; large objects keep their order."""
    if isinstance(value, dict):
        ways = itertools.permutations(value) if len(value) <= 5 else [tuple(value)]
        for names in ways:
            for inside in itertools.product(*(list(orders(value[name])) for name in names)):
                yield dict(zip(names, inside, strict=True))
    elif isinstance(value, list):
        for items in itertools.product(*(list(itertools.islice(orders(item), 24)) for item in value)):
            yield list(items)
    else:
        yield value


def ways(value: Any, most: int = 60) -> Iterator[str]:
    """Yields texts of the value with its properties in different orders."""
    return (json.dumps(way, ensure_ascii=False) for way in itertools.islice(orders(value), most))
