"""A run of a campaign: its duration, its progress messages, and the files of failed cases."""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from lab.report import Report

_PROGRESS_SECONDS = 5.0
#: the limit of a run without `count` and `seconds`
_SECONDS = 60.0
#: failures that are written to files; further ones are only counted
_MAX_FILES = 100


@dataclass
class Campaign:
    """A run of a campaign. Cases are numbered from 0; the seed and the number alone determine a case.

    Without `count` and `seconds`, the campaign decides when to end, after `_SECONDS` at the latest.
    """

    report: Report
    seed: int
    #: ends after this many cases
    count: int | None
    #: ends after this many seconds
    seconds: float | None
    #: for failed cases
    folder: Path
    #: number of the only case to run; None = all
    only: int | None = None
    #: of `exactness`: the selected engines, and the number of processes
    engines: tuple[str, ...] = ()
    jobs: int = 1
    #: the engine to which these cases belong
    part: str = ""
    done: int = 0
    failures: int = 0
    #: outcome -> number of cases
    outcomes: Counter[str] = field(default_factory=Counter)
    begun: float = field(default_factory=time.monotonic)
    _reported: float = 0.0

    def part_for(self, engine: str) -> Campaign:
        """Returns a campaign of the cases of one engine, with the same report."""
        return replace(self, part=engine, done=0, failures=0, outcomes=Counter(), begun=time.monotonic())

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        seconds = _SECONDS if self.count is None and self.seconds is None else self.seconds
        return seconds is not None and self.elapsed >= seconds

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.begun

    def cases(self, usual: int | None = None) -> Iterator[int]:
        """Yields the numbers of cases until there are enough or the time is up.

        `usual` is the number of cases of a run without `count` and `seconds`.
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
        """Returns the random generator of a case. Different `what_for` give independent generators."""
        return random.Random(f"{self.report.suite}/{self.seed}/{case}{what_for}")

    def ended(self, outcome: str, cases: int = 1) -> None:
        """Counts cases and prints the progress from time to time."""
        self.done += cases
        self.outcomes[outcome] += cases
        now = time.monotonic()
        if now - self._reported >= _PROGRESS_SECONDS:
            self._reported = now
            of = f" of {self.count}" if self.count is not None else ""
            rate = self.done / max(self.elapsed, 0.001)
            print(
                f"{self.elapsed:5.0f} s: {self.done}{of} cases, {rate:.0f}/s, {self.failures} failures",
                file=sys.stderr,
            )

    def failed(self, case: int, what: str, data: bytes = b"", suffix: str = ".txt") -> None:
        """Records a broken promise: writes what happened, and the case's data, to files; prints the paths."""
        self.failures += 1
        print(f"case {case} of seed {self.seed} failed: {what}", file=sys.stderr)
        if self.failures > _MAX_FILES:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        stem = "-".join(filter(None, (self.report.suite, self.part, f"{self.seed}-{case}")))
        if data:
            kept = self.folder / f"{stem}{suffix}"
            kept.write_bytes(data)
            print(f"  its data: {kept}", file=sys.stderr)
        description = self.folder / f"{stem}.failure"
        with description.open("a") as file:
            file.write(f"{what}\n\nagain: {self.again(case)}\n")
        print(f"  {description}", file=sys.stderr)

    def again(self, case: int) -> str:
        """Returns the command that runs this case alone."""
        engine = f" --engine {self.part}" if self.part else ""
        return f"./scripts/campaign.sh {self.report.suite}{engine} --seed {self.seed} --only {case}"

    def figure(self, name: str, value: float, unit: str, *, target: float | None = None) -> None:
        """Adds a figure to the report, named after the campaign."""
        names = filter(None, (self.report.suite, self.part, name))
        self.report.figure(".".join(names), value, unit, target=target)
