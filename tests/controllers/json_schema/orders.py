"""The ways to order the properties of a value."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any


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
