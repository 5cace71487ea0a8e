"""Engines for JSON schemas on many schemas, each with its own text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.contestants import Contestant, Refused
from bench.contestants.race import RaceError, Result, race
from bench.schemas import Sample


@dataclass
class Pool:
    """What all schemas together took that every engine went along with."""

    #: times of one engine: the medians of each schema's compilations and masks
    compile_ms: dict[str, list[float]] = field(default_factory=dict)
    mask_us: dict[str, list[float]] = field(default_factory=dict)
    #: schemas that an engine refused
    refused: Counter[str] = field(default_factory=Counter)
    #: names of those that it took, but not their instance: ours may shorten a length beside a pattern
    stricter: dict[str, list[str]] = field(default_factory=dict)
    #: those that counted
    taken: list[Sample] = field(default_factory=list)

    def add(self, name: str, result: Result) -> None:
        self.compile_ms.setdefault(name, []).append(result.compilation.median)
        self.mask_us.setdefault(name, []).extend(result.mask_us)


def race_schemas(
    tokens: Callable[[str], Sequence[int]],
    samples: Iterable[Sample],
    engines: Callable[[Any], list[Contestant]],
    rounds: int,
) -> Pool:
    """`tokens` splits a text, `engines` makes the contestants for a schema."""
    pool = Pool()
    for sample in samples:
        contestants = engines(sample.schema)
        refused = [contestant.name for contestant in contestants if not _takes(contestant)]
        pool.refused.update(refused)
        if refused:
            continue
        try:
            results = race(contestants, tokens(sample.text), rounds)
        except RaceError as error:
            pool.stricter.setdefault(error.engine, []).append(sample.name)
            continue
        pool.taken.append(sample)
        for name, result in results.items():
            pool.add(name, result)
    return pool


def _takes(contestant: Contestant) -> bool:
    try:
        contestant.compile()
    except Refused:
        return False
    return True
