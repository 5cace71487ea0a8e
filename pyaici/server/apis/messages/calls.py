"""Reads tool calls from a text that arrives in pieces."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyaici.server.apis.messages.grammar import END_OF_CALLS
from pyaici.server.apis.messages.tool_rules import END_OF_VALUE
from pyaici.server.apis.schemas import Property
from pyaici.server.apis.text import read_json

_INVOKE, _PARAMETER, _END_OF_INVOKE = '<invoke name="', '<parameter name="', "</invoke>"
_END_OF_NAME = '">'
#: what a name cannot contain, so that a name without an end is not waited for
_NO_NAME = re.compile(r'[<>\n]|"(?!>|\Z)')
#: JSON up to a quotation mark, or to the marker that ends the value: outside of strings, and inside
_OUTSIDE = re.compile(r'[^"<]*')
_IN_STRING = re.compile(r'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL)


class NoCall(Exception):
    """Raised for text that is not a valid call."""


@dataclass(frozen=True, slots=True)
class Call:
    """A tool's name, and the arguments by their names."""

    name: str
    input: dict[str, Any] = field(default_factory=dict)


class CallReader:
    """Reads the text after the marker that begins calls.

    `checked`: a grammar has ensured that values match their schemas. Then a JSON value ends after its JSON,
    and its strings may contain the marker that ends values. Otherwise each value ends at the first such
    marker.
    """

    def __init__(self, known: Callable[[str], Mapping[str, Property]], *, checked: bool) -> None:
        """`known`: returns the arguments of a tool by their names; none for an unknown tool."""
        self._known = known
        self._checked = checked
        self._text = ""
        #: the text is parsed up to `_at`, and has become calls up to `_done`
        self._at = self._done = 0
        #: whether the marker that ends calls has come
        self.over = False
        #: number of calls read
        self.count = 0
        self._found: list[Call] = []
        self._steps = self._read()
        next(self._steps)

    @property
    def rest(self) -> str:
        """The text that has become neither a call nor the end of calls."""
        return self._text[self._done :]

    def feed(self, text: str) -> Iterator[Call]:
        """Yields calls as they end. Raises NoCall if the text cannot become a call."""
        self._text += text
        try:
            next(self._steps)
        except StopIteration:
            self.over = True
        except NoCall:
            yield from self._take()
            raise
        yield from self._take()

    def _take(self) -> list[Call]:
        found, self._found = self._found, []
        return found

    # Each of these generators stops at `yield` until there is more text.

    def _read(self) -> Generator[None, None, None]:
        yield
        while (mark := (yield from self._mark(_INVOKE, END_OF_CALLS))) == _INVOKE:
            call = Call((yield from self._name()))
            while (yield from self._mark(_PARAMETER, _END_OF_INVOKE)) == _PARAMETER:
                name = yield from self._name()
                prop = self._known(call.name).get(name)
                text = yield from self._value(as_json=self._checked and prop is not None and not prop.is_text)
                call.input[name] = prop.read(text) if prop else _guess(text)
            self._found.append(call)
            self.count += 1
            self._done = self._at
        assert mark == END_OF_CALLS
        self._done = self._at

    def _mark(self, *marks: str) -> Generator[None, None, str]:
        """Returns the next marker, after blanks."""
        while True:
            while self._at < len(self._text) and self._text[self._at].isspace():
                self._at += 1
            for mark in marks:
                if self._text.startswith(mark, self._at):
                    self._at += len(mark)
                    return mark
            begun = self._text[self._at :]
            if not any(mark.startswith(begun) for mark in marks):
                raise NoCall
            yield

    def _name(self) -> Generator[None, None, str]:
        while True:
            end = self._text.find(_END_OF_NAME, self._at)
            name = self._text[self._at : end if end >= 0 else None]
            if _NO_NAME.search(name):
                raise NoCall
            if end >= 0:
                self._at = end + len(_END_OF_NAME)
                return name
            yield

    def _value(self, *, as_json: bool) -> Generator[None, None, str]:
        begin = self._at
        if as_json:
            yield from self._pass_json()
        while (end := self._text.find(END_OF_VALUE, self._at)) < 0:
            self._at = max(self._at, len(self._text) - len(END_OF_VALUE) + 1)
            yield
        self._at = end + len(END_OF_VALUE)
        return self._text[begin:end]

    def _pass_json(self) -> Generator[None, None, None]:
        """Moves to the marker that ends the value: the first one outside of strings."""
        inside = False
        while True:
            found = (_IN_STRING if inside else _OUTSIDE).match(self._text, self._at)
            assert found
            self._at = found.end()
            if self._text.startswith('"', self._at):
                self._at, inside = self._at + 1, not inside
            elif self._text.startswith("<", self._at):
                return  # JSON has no `<` outside of strings, so it is the marker
            else:
                yield


def _guess(text: str) -> Any:
    """Returns an argument without a schema: JSON, or a text."""
    try:
        return read_json(text)
    except ValueError:
        return text
