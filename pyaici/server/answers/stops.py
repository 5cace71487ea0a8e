"""Finds marker strings in a text that grows, such as the stop strings that end an answer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any


class MarkerScanner:
    """Finds the first of several marker strings in a text."""

    def __init__(self, marks: Iterable[str]) -> None:
        #: longest first: of the markers that end at the same place, the longest counts
        self._marks = sorted(marks, key=len, reverse=True)
        self._first = frozenset(mark[0] for mark in self._marks)
        self._longest = max((len(mark) for mark in self._marks), default=1) - 1
        # a look-behind at each place finds the marker that ends first, whichever begins first
        self._end = re.compile("|".join(f"(?<={re.escape(mark)})" for mark in self._marks) or "(?!)")

    def __bool__(self) -> bool:
        return bool(self._marks)

    @property
    def longest(self) -> int:
        """Length of the longest marker, at least 1."""
        return self._longest + 1

    def find(self, text: str, after: int = 0) -> tuple[int, str] | None:
        """Returns the place and the text of the marker that ends first.

        `after`: the marker must end after this place.
        """
        found = self._end.search(text, after + 1) if self._marks and after < len(text) else None
        if not found:
            return None
        mark = next(mark for mark in self._marks if text.endswith(mark, 0, found.end()))
        return found.end() - len(mark), mark

    def held(self, text: str) -> int:
        """Returns how many characters at the end of a text without markers may begin a marker."""
        for length in range(min(self._longest, len(text)), 0, -1):
            if text[-length] not in self._first:
                continue
            end = text[-length:]
            if any(length < len(mark) and mark.startswith(end) for mark in self._marks):
                return length
        return 0


@dataclass(frozen=True, slots=True)
class Stop:
    """The stop string that ended an answer. It is no part of the answer."""

    mark: str


class StopFinder:
    """Finds the first stop string in a text; like `pyaici.server.answers.reader.Reader`, but without events.

    The text is whatever comes before `rest`.
    """

    #: a text has no reasoning
    reasons = False

    def __init__(self, stop: Sequence[str] = ()) -> None:
        self._marks = MarkerScanner(stop)
        self._raw = ""
        #: text before this place has no stop string
        self._searched = 0
        #: how many characters at the end are no part of the answer, or may begin a stop string
        self.rest = 0
        #: the stop string that has ended the text
        self.stop: Stop | None = None

    @property
    def over(self) -> bool:
        """Whether the text has ended."""
        return self.stop is not None

    def feed(self, text: str) -> list[Any]:
        """Reads more text."""
        self._raw += text
        if not self._marks:
            return []
        begin = max(0, self._searched - self._marks.longest + 1)
        if (found := self._marks.find(self._raw[begin:])) is not None:
            self.rest, self.stop = len(self._raw) - begin - found[0], Stop(found[1])
        else:
            self._searched = len(self._raw)
            self.rest = self._marks.held(self._raw[-self._marks.longest :])
        return []

    def end(self) -> list[Any]:
        """Takes what was held back for text, at the end of the answer."""
        self.rest = self.rest if self.over else 0
        return []

    def cut(self, count: int) -> list[Any]:
        """Removes characters at the end."""
        self._raw = self._raw[: max(0, len(self._raw) - count)]
        self._searched, self.stop = min(self._searched, len(self._raw)), None
        return self.feed("")
