"""A race of engines for JSON schemas over many schemas, each with its own text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from lab.contestants import Contestant, Refused
from lab.contestants.race import RaceError, Result, race
from lab.inputs.schemas import Sample


@dataclass
class Pool:
    """Results over all schemas that every engine accepts."""

    #: by engine: the median of each schema's compilations
    compile_ms: dict[str, list[float]] = field(default_factory=dict)
    #: by engine: the medians of all masks
    mask_us: dict[str, list[float]] = field(default_factory=dict)
    #: by engine: the number of schemas that it refused
    refused: Counter[str] = field(default_factory=Counter)
    #: by engine: names of schemas that it accepted without accepting their instance (AICI may shorten a
    #: maximal length beside a pattern)
    stricter: dict[str, list[str]] = field(default_factory=dict)
    #: the schemas that count
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
    """Races engines on each sample: `tokens` tokenizes a text, `engines` makes contestants for a schema."""
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
