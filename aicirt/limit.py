"""What a limit says about itself, for the people who may set it: `aici runtime --help`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any


def limit(default: float, unit: str, beyond: str) -> Any:
    """A field of a dataclass of limits: its default, its unit, and what happens beyond it."""
    return dataclasses.field(default=default, metadata={"unit": unit, "beyond": beyond})


def describe(limits: type[Any]) -> Iterator[tuple[str, str, str]]:
    """(name, default with its unit, what happens beyond it) of every field of a dataclass of limits."""
    for item in dataclasses.fields(limits):
        default: Any = item.default
        yield item.name, _amount(default, item.metadata["unit"]), item.metadata["beyond"]


def _amount(value: float, unit: str) -> str:
    if unit.startswith("bytes"):
        size, name = (value / (1 << 20), "MiB") if value >= 1 << 20 else (value / (1 << 10), "KiB")
        if size >= 1:
            unit = f"{unit} ({size:g} {name})"
    return f"{value:.0f} {unit}" if value == int(value) else f"{value:g} {unit}"
