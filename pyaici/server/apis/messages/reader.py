"""Splits an answer into thinking, text and tool calls while it is generated."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

from pyaici.server.apis.messages.calls import CallReader, NoCall
from pyaici.server.apis.messages.grammar import CALLS
from pyaici.server.apis.messages.requests import Tool
from pyaici.server.apis.schemas import by_name
from pyaici.server.apis.stops import MarkerScanner
from pyaici.server.apis.thinking import END_OF_THINKING, THINK


@dataclass(frozen=True, slots=True)
class Delta:
    """More of a thinking or text block."""

    kind: Literal["thinking", "text"]
    text: str


@dataclass(frozen=True, slots=True)
class Stop:
    """The end of a thinking or text block. Every block that has begun gets one."""

    kind: Literal["thinking", "text"]


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A tool call."""

    name: str
    input: dict[str, Any] = field(default_factory=dict)


Event = Delta | Stop | ToolUse


class _State(Enum):
    TEXT = "text"
    THINKING = "thinking"
    CALLS = "calls"
    OVER = "over"


class Reader:
    """Splits a text into thinking, texts and calls; the result does not depend on how the text is cut.

    Blanks around thinking and texts are dropped, and so are blocks of blanks alone. Stop strings are looked
    for in texts; of several that end at the same place, the longest counts.
    """

    def __init__(
        self,
        *,
        tools: Mapping[str, Tool],
        stop: Sequence[str] = (),
        inside: bool = False,
        checked: bool = False,
        calls: bool = True,
        json: bool = False,
    ) -> None:
        """Starts reading. `inside`: the text begins within thinking. `checked`: see `CallReader`.

        `tools`: those that may be called. Unless there may be `calls`, their markers are ordinary text.
        `json`: a text is JSON, in which only stop strings count.
        """
        # a schema may have many arguments, and a text many markers: each is read at most once
        self._known = functools.cache(lambda name: by_name(tools[name].input_schema) if name in tools else {})
        self._checked = checked
        self._marks = [*([CALLS] if calls else []), THINK]
        self._in_text = MarkerScanner([*self._marks, *stop])
        self._in_json = MarkerScanner(stop) if json else None
        self._in_thinking = MarkerScanner([END_OF_THINKING])
        self._state = _State.THINKING if inside else _State.TEXT
        self._begun = False
        self._after_thinking = False  # only blanks have come since the end of thinking
        self._held = ""  # may be the beginning of a marker, or blanks at the end
        self._calls: CallReader | None = None
        #: the stop string that ended the text
        self.stopped_by: str | None = None

    @property
    def over(self) -> bool:
        """Whether the answer is complete; text after it is ignored."""
        return self._state == _State.OVER

    def feed(self, text: str) -> Iterator[Event]:
        """Yields the events of more text."""
        self._held += text
        state = None
        while state != self._state:  # a marker changes the state
            state = self._state
            if state == _State.TEXT:
                yield from self._read("text", self._in_text)
            elif state == _State.THINKING:
                yield from self._read("thinking", self._in_thinking)
            elif state == _State.CALLS:
                yield from self._read_calls()

    def finish(self) -> Iterator[Event]:
        """Yields the last events. An unfinished or invalid call becomes text, so nothing is lost."""
        if self._state == _State.CALLS:
            yield from self._reread_as_text()
            yield from self.feed("")
        if self._state in (_State.TEXT, _State.THINKING):
            yield from self._emit(self._kind, self._held.rstrip())
            yield from self._end(self._kind)
        self._state, self._held = _State.OVER, ""

    @property
    def _kind(self) -> Literal["thinking", "text"]:
        return "thinking" if self._state == _State.THINKING else "text"

    def _read(self, kind: Literal["thinking", "text"], marks: MarkerScanner) -> Iterator[Event]:
        if kind == "text" and self._in_json is not None:
            bare = self._held.lstrip()
            if self._begun or not any(mark.startswith(bare[: len(mark)]) for mark in self._marks):
                marks = self._in_json
            elif bare not in self._marks and any(mark.startswith(bare) for mark in self._marks):
                return  # the following text decides whether it is a marker
        # a stop string among these blanks does not count
        blanks = len(self._held) - len(self._held.lstrip()) if self._after_thinking and kind == "text" else 0
        found = marks.find(self._held, blanks)
        if not found:
            sure = self._held[: len(self._held) - marks.held(self._held)].rstrip()
            yield from self._emit(kind, sure)
            self._after_thinking = self._after_thinking and not sure
            self._held = self._held[len(sure) :]
            return
        at, mark = found
        before, self._held = self._held[:at].rstrip(), self._held[at + len(mark) :]
        yield from self._emit(kind, before)
        yield from self._end(kind)
        self._after_thinking = kind == "thinking"
        if kind == "thinking":
            self._state = _State.TEXT
        elif mark == THINK:
            self._state = _State.THINKING
        elif mark == CALLS:
            self._state, self._calls = _State.CALLS, CallReader(self._known, checked=self._checked)
        else:
            self._state, self.stopped_by, self._held = _State.OVER, mark, ""

    def _emit(self, kind: Literal["thinking", "text"], text: str) -> Iterator[Event]:
        text = text if self._begun else text.lstrip()
        if text:
            self._begun = True
            yield Delta(kind, text)

    def _end(self, kind: Literal["thinking", "text"]) -> Iterator[Event]:
        if self._begun:
            self._begun = False
            yield Stop(kind)

    def _read_calls(self) -> Iterator[Event]:
        assert self._calls
        piece, self._held = self._held, ""
        try:
            for call in self._calls.feed(piece):
                yield ToolUse(call.name, call.input)
        except NoCall:
            yield from self._reread_as_text()
            return
        if self._calls.over:
            self._state = _State.OVER

    def _reread_as_text(self) -> Iterator[Event]:
        """Reads the rest as text: it is no valid call, or has no end."""
        assert self._calls
        self._state = _State.TEXT
        if not self._calls.count:
            yield from self._emit("text", CALLS)
        self._held = self._calls.rest
