"""Finds the end of an answer: a stop string in its text, outside of reasoning and tool calls."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


class MarkerScanner:
    """Finds the first of several marker strings in a text."""

    def __init__(self, marks: Iterable[str]) -> None:
        #: longest first: of the markers that end at the same place, the longest counts
        self._marks = sorted(marks, key=len, reverse=True)
        self._first = frozenset(mark[0] for mark in self._marks)
        self._longest = max((len(mark) for mark in self._marks), default=1) - 1
        # a look-behind at each place finds the marker that ends first, whichever begins first
        self._end = re.compile("|".join(f"(?<={re.escape(mark)})" for mark in self._marks) or "(?!)")

    def find(self, text: str, after: int = 0) -> tuple[int, str] | None:
        """Returns the place and the text of the marker that ends first.

        `after`: the marker must end after this place.
        """
        found = self._end.search(text, after + 1) if after < len(text) else None
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
class Protected:
    """Parts of an answer in which no stop string counts, each as (its begin marker, its end marker).

    A stop string among the blanks after such a part does not count either. A part whose end marker is empty
    goes on to the end of the answer.
    """

    #: parts that may only come at the beginning, in this order, each optional; blanks may come before them
    first: tuple[tuple[str, str], ...] = ()
    #: the first of these has already begun in the prompt
    open: bool = False
    #: the part that may come anywhere after these
    inner: tuple[str, str] | None = None


class Stops:
    """Finds stop strings in a text that grows, and may be cut back."""

    def __init__(self, stop: Sequence[str] = (), protected: Protected | None = None) -> None:
        self._stop = frozenset(stop)
        self._protected = protected or Protected()
        inner = self._protected.inner
        self._marks = MarkerScanner({*stop, *(inner[:1] if inner else ())})
        self._ends = MarkerScanner(stop)
        self._longest = max(map(len, (*stop, *(inner or ()))), default=1)
        self._begin()

    def _begin(self) -> None:
        #: text before this place need not be scanned again
        self._at = 0
        #: text from `_at` up to here contains no complete stop string
        self._searched = 0
        #: how many of `first` have ended, or were absent
        self._passed = 0
        #: the end marker of the protected part that the text is in
        self._until: str | None = None
        #: only blanks have come after a protected part, and where they end
        self._behind, self._blank = False, 0
        #: place of a possible stop string, which the following text decides
        self._unsure: int | None = None
        if self._protected.open:
            self._passed, self._until = 1, self._protected.first[0][1]

    def cut(self, length: int) -> None:
        """Handles backtracking: only the first `length` characters are left."""
        if length < self._at:
            self._begin()
        self._behind = self._behind or length < self._blank
        self._searched = min(self._searched, length)

    def find(self, text: str, *, last: bool = False) -> tuple[int, str] | None:
        """Returns where the answer ends, and the stop string there. `last`: the text will not grow."""
        if not self._stop:
            return None
        first, self._unsure = self._protected.first, None
        while True:
            if self._until is not None:
                if not self._pass(text):
                    return None
            elif self._passed < len(first):
                begin, end = first[self._passed]
                bare = text[self._at :].lstrip()
                if bare.startswith(begin):
                    self._at, self._until = len(text) - len(bare) + len(begin), end
                elif not last and begin.startswith(bare):
                    return None
                self._passed += 1
            else:
                if self._behind:
                    self._blank = len(text) - len(text[self._at :].lstrip())
                    self._behind = self._blank == len(text)
                start = max(self._at, self._searched - self._longest + 1)
                found = self._marks.find(text[start:], max(0, self._blank - start))
                if found is None:
                    self._searched = len(text)
                    return None
                at, mark = start + found[0], found[1]
                over = self._beginning_over(text, at, at + len(mark))
                if over is None or (over > len(text) and last):
                    return at, mark
                if over > len(text):  # the following text decides whether it is a stop string
                    self._unsure = at
                    return None
                assert self._protected.inner is not None
                self._at, self._until = over, self._protected.inner[1]

    def _beginning_over(self, text: str, at: int, end: int) -> int | None:
        """Returns where an `inner` begin marker that this piece may belong to ends.

        That may be after the end of the text. Returns None if the piece belongs to no such marker.
        """
        if self._protected.inner is None:
            return None
        mark = self._protected.inner[0]
        for start in range(max(self._at, end - len(mark)), at + 1):
            if mark.startswith(text[start : start + len(mark)]):
                return start + len(mark)
        return None

    def _pass(self, text: str) -> bool:
        """Tells whether the protected part that the text is in has ended, and leaves it."""
        assert self._until is not None
        at = text.find(self._until, self._at) if self._until else -1
        if at < 0:
            self._at = max(self._at, len(text) - len(self._until) + 1)
            return False
        self._at, self._until, self._behind = at + len(self._until), None, True
        return True

    def held(self, text: str) -> int:
        """Returns how many characters at the end may begin a stop string, after `find` has found none."""
        if self._until is not None:
            return 0
        if self._unsure is not None:
            return len(text) - self._unsure
        if self._passed < len(self._protected.first):  # undecided: the text may begin a protected part
            return len(text) - self._at if self._stop else 0
        return self._ends.held(text[max(self._at, len(text) - self._longest) :])
