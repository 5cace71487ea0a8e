"""A race: contestants process the same text, one after the other, round by round."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from bench.contestants import Contestant
from bench.measurement.timing import Summary, alternate, summarise


class RaceError(AssertionError):
    """An engine does not allow a token of the text."""

    def __init__(self, engine: str, place: int, count: int) -> None:
        super().__init__(f"{engine} does not allow token {place} of {count}")
        self.engine = engine


@dataclass
class Result:
    """Times of one contestant: ms of each compilation, us of the masks of each round."""

    compile_ms: list[float] = field(default_factory=list)
    rounds: list[list[float]] = field(default_factory=list)

    @property
    def mask_us(self) -> list[float]:
        """The time of each token's mask, with accepting the token before it: the median of all rounds."""
        return [statistics.median(times) for times in zip(*self.rounds, strict=True)]

    @property
    def masks(self) -> Summary:
        return summarise(self.mask_us)

    @property
    def compilation(self) -> Summary:
        return summarise(self.compile_ms)


def walk(contestant: Contestant, tokens: Sequence[int]) -> list[float]:
    """Returns the microseconds of the mask before each token. Raises RaceError if a token is not allowed."""
    times: list[float] = []
    contestant.reset()
    for place, token in enumerate(tokens):
        begin = time.perf_counter()
        if place:
            contestant.accept(tokens[place - 1])
        contestant.mask()
        times.append((time.perf_counter() - begin) * 1e6)
        row = contestant.row()
        if len(row) <= token >> 3 or not row[token >> 3] >> (token & 7) & 1:
            raise RaceError(contestant.name, place, len(tokens))
    return times


def race(contestants: Sequence[Contestant], tokens: Sequence[int], rounds: int) -> Mapping[str, Result]:
    """Lets each contestant compile its grammar and walk through the text in each round.

    Raises Refused if an engine refuses its grammar, and RaceError if it does not allow a token of the text.
    """
    results = {contestant.name: Result() for contestant in contestants}

    def turn(contestant: Contestant) -> None:
        begin = time.perf_counter()
        contestant.compile()
        results[contestant.name].compile_ms.append((time.perf_counter() - begin) * 1e3)
        results[contestant.name].rounds.append(walk(contestant, tokens))

    alternate({c.name: partial(turn, c) for c in contestants}, rounds, warmup=0)
    return results
