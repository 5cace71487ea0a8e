"""Results on disk, a line of JSON for each case: an interrupted run goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class ResumableResults:
    """The first line of the file says what the results depend on; a file with another one is replaced."""

    def __init__(self, path: Path, about: dict[str, Any]) -> None:
        self.path = path
        #: names of cases with a result
        self.names: set[str] = set()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._good = 0
        if not path.exists() or next(self._lines(), None) != about:
            path.write_text("")
            self.add(about)
            return
        self.names = {result["name"] for result in self}
        with path.open("r+b") as file:  # the last line may be incomplete
            file.truncate(self._good)

    def add(self, result: dict[str, Any]) -> None:
        """Appends a result. Its member "name" is that of the case."""
        with self.path.open("a") as file:
            file.write(json.dumps(result, separators=(",", ":")) + "\n")
        self.names |= {result["name"]} if "name" in result else set()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yields all results, read from the file."""
        lines = self._lines()
        next(lines)
        yield from lines

    def _lines(self) -> Iterator[dict[str, Any]]:
        self._good = 0
        with self.path.open("rb") as file:
            for line in file:
                try:
                    data = json.loads(line)
                except ValueError:
                    return
                if not line.endswith(b"\n") or not isinstance(data, dict):
                    return
                self._good += len(line)
                yield data
