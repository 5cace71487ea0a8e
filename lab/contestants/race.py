"""A race: contestants process the same text, one after the other, round by round."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from lab.contestants import Contestant
from lab.measurement.timing import Summary, alternate, summarise


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


class Step(NamedTuple):
    """A mask with accepting the token before it: ns of wall clock and of the thread's CPU time.

    `row`: the mask, as `Contestant.row` returns it."""

    wall_ns: int
    cpu_ns: int
    row: bytes

    def allows(self, token: int) -> bool:
        """Returns whether the mask allows a token."""
        return len(self.row) > token >> 3 and bool(self.row[token >> 3] >> (token & 7) & 1)


def steps(contestant: Contestant, tokens: Sequence[int]) -> Iterator[Step]:
    """Yields a step for the mask before each token, and for the mask after the last one, for a new text."""
    for place in range(len(tokens) + 1):
        cpu, wall = time.thread_time_ns(), time.perf_counter_ns()
        if place:
            contestant.accept(tokens[place - 1])
        contestant.mask()
        wall = time.perf_counter_ns() - wall
        cpu = time.thread_time_ns() - cpu
        yield Step(wall, cpu, contestant.row())


def walk(contestant: Contestant, tokens: Sequence[int]) -> list[float]:
    """Returns the microseconds of the mask before each token. Raises RaceError if a token is not allowed."""
    times: list[float] = []
    contestant.reset()
    for place, (token, step) in enumerate(zip(tokens, steps(contestant, tokens), strict=False)):
        times.append(step.wall_ns / 1e3)
        if not step.allows(token):
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
