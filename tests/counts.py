"""Committed counts of work, which are the same in each run: a test fails if one differs by more than 2 %.

A file holds a JSON object with one case a line. A case has named counts; a count is a number, or a list of
numbers that are compared one by one and in total.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: part by which a count may differ from the committed one
TOLERANCE = 0.02

Cases = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Counts:
    """A file of counts."""

    file: Path
    #: the module whose `main` updates the file
    module: str
    #: count below which a single number of a list may differ by more
    small: int = 0

    def committed(self) -> dict[str, Any]:
        """Returns the counts in the file; none if there is no file."""
        return json.loads(self.file.read_text()) if self.file.exists() else {}

    def check(self, found: Cases) -> None:
        """Raises AssertionError if counts differ from those of the file."""
        lines = self.differences(found, self.committed())
        problem = f"counts differ; if that is intended, run `python -m {self.module} --write`"
        assert not lines, "\n".join([problem, *lines])

    def differences(self, found: Cases, known: Cases) -> list[str]:
        """Returns a line for each count that differs by more than TOLERANCE."""
        lines = [f"{name}: no longer measured" for name in known.keys() - found.keys()]
        for name, counts in found.items():
            if name not in known:
                lines.append(f"{name}: new")
                continue
            for what, new, was in self._pairs(counts, known[name]):
                if abs(new - was) > TOLERANCE * was:
                    change = f" ({new / was - 1:+.1%})" if was else ""
                    lines.append(f"{name}: {what} {new:,} instead of {was:,}{change}")
        return lines

    def _pairs(self, new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[tuple[str, int, int]]:
        for what in {**old, **new}:
            now, was = new.get(what, 0), old.get(what, 0)
            if isinstance(now, int) and isinstance(was, int):
                yield what, now, was
                continue
            now, was = now or [], was or []
            yield f"all {what}", sum(now), sum(was)
            singles = zip(now, was, strict=False)
            yield from ((f"{what} {i}", n, w) for i, (n, w) in enumerate(singles) if max(n, w) > self.small)
            if len(now) != len(was):
                yield f"number of {what}", len(now), len(was)

    def main(self, measure: Callable[[], Cases], about: str | None) -> int:
        """Prints what differs from the file; returns 1 if something does and the file was not written."""
        parser = argparse.ArgumentParser(prog=f"python -m {self.module}", description=about)
        parser.add_argument("--write", action="store_true", help=f"update {self.file.name}")
        options = parser.parse_args()
        found = measure()
        lines = self.differences(found, self.committed())
        print(*lines, sep="\n")
        if options.write:
            cases = (f"{json.dumps(name)}: {json.dumps(counts)}" for name, counts in found.items())
            self.file.write_text("{\n" + ",\n".join(cases) + "\n}\n")
        return int(bool(lines) and not options.write)
