"""Fuel counts the same work in each run, and less of it after the first text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lab.contestants import Refused
from lab.contestants.fuel import Fuel
from lab.contestants.race import steps
from lab.runners.fuel import metered_host
from lab.runners.host import ascii_vocab
from pyaici.bundled import find_controller

SCHEMA = '{"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}'
TEXT = '{"name": "Ada"}'


@pytest.fixture(scope="module")
def make() -> Iterator[Callable[[str], Fuel]]:
    with metered_host() as host:
        program = host.compile(find_controller("json_schema").read_bytes())
        yield lambda schema: Fuel(program, ascii_vocab(), schema)


def passes(contestant: Fuel, count: int) -> list[tuple[list[int], list[bytes]]]:
    """Compiles, and walks through the text; returns the fuel and the masks of each time."""
    tokens = ascii_vocab().tokenize(TEXT.encode())
    contestant.compile()
    found: list[Any] = []
    for _ in range(count):
        contestant.reset()
        walk = [(contestant.fuel, step.row) for step in steps(contestant, tokens)]
        found.append(([fuel for fuel, _ in walk], [row for _, row in walk]))
        contestant.idle()
    contestant.close()
    return found


def test_fuel(make: Callable[[str], Fuel]) -> None:
    contestant = make(SCHEMA)
    first, second, third = passes(contestant, 3)
    assert first[1] == second[1] == third[1], "the masks"
    assert min(first[0]) > 0 and len(first[0]) == len(TEXT) + 1
    assert sum(second[0]) < sum(first[0]) / 2
    assert passes(make(SCHEMA), 3) == [first, second, third], "the same in each run"


def test_schema_is_refused(make: Callable[[str], Fuel]) -> None:
    with pytest.raises(Refused, match="one of null, boolean"):
        make('{"type": "int"}').compile()
