"""One run of a campaign: how long it goes on, what it says meanwhile, and where what fails is kept."""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench.report import Report

_PROGRESS_SECONDS = 5.0
#: for those who do not say how long
_SECONDS = 60.0
#: failures that are described; more are counted
_MOST_FILES = 100


@dataclass
class Campaign:
    """Cases are numbered from 0; what a case is follows from the seed and its number alone.

    Without `count` and `seconds` it is for the campaign to say when it is over, at `_SECONDS` at the latest.
    """

    report: Report
    seed: int
    #: ends after so many cases
    count: int | None
    #: or after so many seconds
    seconds: float | None
    #: for what fails
    folder: Path
    #: of the one case to run again; None = all
    only: int | None = None
    done: int = 0
    failures: int = 0
    #: how many cases ended in which way
    outcomes: Counter[str] = field(default_factory=Counter)
    begun: float = field(default_factory=time.monotonic)
    _told: float = 0.0

    @property
    def over(self) -> bool:
        """Whether no time is left."""
        seconds = _SECONDS if self.count is None and self.seconds is None else self.seconds
        return seconds is not None and self.elapsed >= seconds

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.begun

    def cases(self, usual: int | None = None) -> Iterator[int]:
        """Numbers of cases, until there have been enough or time is up.

        `usual`: how many if nobody says how many, or how long.
        """
        if self.only is not None:
            yield self.only
            return
        if usual is not None and self.count is None and self.seconds is None:
            self.count = usual
        number = 0
        while not self.over and (self.count is None or number < self.count):
            yield number
            number += 1

    def random(self, case: int, what_for: str = "") -> random.Random:
        """The source of everything that is random in a case, or of one of several that are independent."""
        return random.Random(f"{self.report.suite}/{self.seed}/{case}{what_for}")

    def ended(self, outcome: str, cases: int = 1) -> None:
        """Counts cases; says from time to time how far it has come."""
        self.done += cases
        self.outcomes[outcome] += cases
        now = time.monotonic()
        if now - self._told >= _PROGRESS_SECONDS:
            self._told = now
            of = f" of {self.count}" if self.count is not None else ""
            rate = self.done / max(self.elapsed, 0.001)
            print(
                f"{self.elapsed:5.0f} s: {self.done}{of} cases, {rate:.0f}/s, {self.failures} failures",
                file=sys.stderr,
            )

    def failed(self, case: int, what: str, data: bytes = b"", suffix: str = ".txt") -> None:
        """A promise was broken: keeps the case's data and what happened, and says where."""
        self.failures += 1
        print(f"case {case} of seed {self.seed} failed: {what}", file=sys.stderr)
        if self.failures > _MOST_FILES:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        stem = f"{self.report.suite}-{self.seed}-{case}"
        if data:
            kept = self.folder / f"{stem}{suffix}"
            kept.write_bytes(data)
            print(f"  its data: {kept}", file=sys.stderr)
        told = self.folder / f"{stem}.failure"
        with told.open("a") as file:
            file.write(f"{what}\n\nagain: {self.again(case)}\n")
        print(f"  {told}", file=sys.stderr)

    def again(self, case: int) -> str:
        """The command that runs this case alone."""
        return f"./scripts/campaign.sh {self.report.suite} --seed {self.seed} --only {case}"

    def figure(self, name: str, value: float, unit: str, *, target: float | None = None) -> None:
        """A number for the report, named after the campaign."""
        self.report.figure(f"{self.report.suite}.{name}", value, unit, target=target)
