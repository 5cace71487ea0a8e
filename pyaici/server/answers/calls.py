"""Reads the calls in an answer while it is generated: a parser that waits for text, and what it finds."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Generator, Iterator
from dataclasses import dataclass
from typing import Any

from pyaici.server.answers.arguments import read_json

#: JSON up to what opens or closes a part of it: outside of strings, and inside
_OUTSIDE = re.compile(r'[^"\[\]{}]*')
_IN_STRING = re.compile(r'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL)
#: a number or a word of JSON, perhaps not a valid one
_WORD = re.compile(r"[-+.\w]*")
#: the longest name of a tool or an argument that is waited for, and the longest number
_MAX_NAME, _MAX_WORD = 1024, 8192


class NoCall(Exception):
    """Raised for text that is not a valid call."""


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call: the tool's name, and the value of its arguments, as in JSON."""

    name: str
    arguments: Any


@dataclass(frozen=True, slots=True)
class ToolCalled:
    """A call of a tool of an MCP server has begun. `arguments`: JSON."""

    id: str
    server: str
    tool: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolEnded:
    """Such a call has ended, with its result, or else with the code and the message of its error."""

    id: str
    output: str | None = None
    error: tuple[str, str] | None = None


#: a parser stops at each `yield` until there is more text, and raises NoCall for what cannot be a call
Waiting = Generator[None, None, Any]


class Cursor:
    """A place in the text of calls, which grows."""

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        #: the text will not grow
        self.last = False
        #: calls that have been read, each with its end
        self.found: list[tuple[Call, int]] = []

    def call(self, name: str, arguments: Any) -> None:
        """Adds a call that ends here."""
        self.found.append((Call(name, arguments), self.at))

    def wait(self) -> Generator[None, None, None]:
        """Waits for more text."""
        if self.last:
            raise NoCall
        yield

    def mark(self, *marks: str) -> Generator[None, None, str]:
        """Passes one of these marks, with any blanks before it, and returns it."""
        bare = [mark.strip() for mark in marks]
        while True:
            self._pass_blanks()
            for mark, text in zip(marks, bare, strict=True):
                if self.text.startswith(text, self.at):
                    self.at += len(text)
                    return mark
            begun = self.text[self.at :]
            if not any(text.startswith(begun) for text in bare):
                raise NoCall
            yield from self.wait()

    def may_pass(self, mark: str) -> Generator[None, None, bool]:
        """Passes a mark and blanks before it if it comes next, and tells whether it did."""
        bare, begin = mark.strip(), self.at
        while True:
            self._pass_blanks()
            if self.text.startswith(bare, self.at):
                self.at += len(bare)
                return True
            if self.last or not bare.startswith(self.text[self.at :]):
                self.at = begin
                return False
            yield

    def name(self, end: str, pattern: re.Pattern[str]) -> Generator[None, None, str]:
        """Passes a name and the mark that ends it, and returns the name.

        `pattern`: what a name cannot contain, so that one without an end is not waited for.
        """
        while True:
            at = self.text.find(end, self.at, self.at + _MAX_NAME + len(end))
            name = self.text[self.at : at if at >= 0 else None]
            # a piece of the mark may be at the end of the text
            sure = name if at >= 0 else name[: max(0, len(name) - len(end) + 1)]
            if pattern.search(sure) or len(sure) > _MAX_NAME:
                raise NoCall
            if at >= 0:
                self.at = at + len(end)
                return name
            yield from self.wait()

    def word(self, characters: re.Pattern[str]) -> Generator[None, None, str]:
        """Passes all such characters, after any blanks. `characters`: matches any number."""
        self._pass_blanks()
        while True:
            found = characters.match(self.text, self.at)
            assert found
            if len(found[0]) > _MAX_WORD:
                raise NoCall
            if self.last or found.end() < len(self.text):
                self.at = found.end()
                return found[0]
            yield
            if not found[0]:
                self._pass_blanks()

    def until(self, mark: str) -> Generator[None, None, str]:
        """Passes the first such mark, and returns the text before it."""
        begin = self.at
        while (end := self.text.find(mark, self.at)) < 0:
            self.at = max(self.at, len(self.text) - len(mark) + 1)
            yield from self.wait()
        self.at = end + len(mark)
        return self.text[begin:end]

    def json(self) -> Waiting:
        """Passes a JSON value, after any blanks, and returns it. Strings in it may contain any marks."""
        self._pass_blanks()
        while self.at == len(self.text):
            yield from self.wait()
            self._pass_blanks()
        begin = self.at
        yield from self._pass_json()
        try:
            return read_json(self.text[begin : self.at])
        except ValueError:
            raise NoCall from None

    def _pass_json(self) -> Generator[None, None, None]:
        if self.text[self.at] not in '"[{':
            yield from self.word(_WORD)
            return
        depth, inside = 0, False
        while True:
            found = (_IN_STRING if inside else _OUTSIDE).match(self.text, self.at)
            assert found
            self.at = found.end()
            if self.at == len(self.text) or self.text[self.at] == "\\":
                yield from self.wait()
                continue
            char = self.text[self.at]
            self.at += 1
            if char == '"':
                inside = not inside
            else:
                depth += 1 if char in "[{" else -1
            if not inside and depth <= 0:
                return

    def _pass_blanks(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1


class CallReader:
    """Reads the text after the mark that begins calls. Each character is looked at a few times at most."""

    def __init__(self, read: Callable[[Cursor], Waiting], names: Collection[str] | None = None) -> None:
        """`read`: the parser of a format. `names`: of the tools that may be called; None = any."""
        self._cursor = Cursor()
        self._names = names
        #: whether all has been read
        self.over = False
        #: number of calls read, and the end of what has become calls
        self.count = self.done = 0
        self._steps = read(self._cursor)

    @property
    def text(self) -> str:
        """The text so far, also what follows the calls."""
        return self._cursor.text

    @property
    def at(self) -> int:
        """The end of what has been read: where calls end, or where it turned out that there is none."""
        return self._cursor.at

    def feed(self, text: str, *, last: bool = False) -> Iterator[Call]:
        """Yields calls as they end. Raises NoCall if the rest of the text cannot become one."""
        cursor = self._cursor
        cursor.text += text
        cursor.last = last
        failed = False
        if not self.over:
            try:
                next(self._steps)
            except StopIteration:
                self.over = True
            except NoCall:
                failed = True
        found, cursor.found = cursor.found, []
        for call, end in found:
            if self._names is not None and call.name not in self._names:
                raise NoCall
            self.count += 1
            self.done = end
            yield call
        if failed:
            raise NoCall
