"""Variables of controllers as people are told of them: names are bytes there, and texts here."""

from __future__ import annotations

from collections.abc import Mapping


def variable_name(name: bytes) -> str:
    """A variable's name as a text: UTF-8, and bytes that are none as \\xNN."""
    return name.decode("utf-8", "backslashreplace")


def by_name(values: Mapping[bytes, bytes]) -> dict[str, bytes]:
    """Variables by their names as texts."""
    return {variable_name(name): value for name, value in values.items()}
