"""Looks for marks in a text that comes in pieces, and says what is surely not part of one."""

from __future__ import annotations

import re
from collections.abc import Iterable


class Marks:
    """A set of texts to look for."""

    def __init__(self, marks: Iterable[str]) -> None:
        #: the longest first: of those that end at one place the longest is meant
        self._marks = sorted(marks, key=len, reverse=True)
        self._first = frozenset(mark[0] for mark in self._marks)
        self._longest = max((len(mark) for mark in self._marks), default=1) - 1
        # a look-behind at each place finds the first end, whichever mark began first
        self._end = re.compile("|".join(f"(?<={re.escape(mark)})" for mark in self._marks) or "(?!)")

    def find(self, text: str, after: int = 0) -> tuple[int, str] | None:
        """Where the mark begins that ends first, and which one it is. `after`: it ends behind this place."""
        found = self._end.search(text, after + 1) if after < len(text) else None
        if not found:
            return None
        mark = next(mark for mark in self._marks if text.endswith(mark, 0, found.end()))
        return found.end() - len(mark), mark

    def held(self, text: str) -> int:
        """How many characters at the end of a text without marks may be the beginning of one."""
        for length in range(min(self._longest, len(text)), 0, -1):
            if text[-length] not in self._first:
                continue
            end = text[-length:]
            if any(length < len(mark) and mark.startswith(end) for mark in self._marks):
                return length
        return 0
