"""Splits an answer into reasoning, content and tool calls while it is generated."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pyaici.server.apis.stops import MarkerScanner

if TYPE_CHECKING:
    from pyaici.server.apis.openai.grammar import Start
    from pyaici.server.apis.openai.tool_format import ToolFormat


@dataclass(frozen=True, slots=True)
class TextChunk:
    """More text of the reasoning or the content."""

    kind: Literal["reasoning", "content"]
    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call. `arguments` is JSON."""

    name: str
    arguments: str


Part = TextChunk | Call


class AnswerReader:
    """Splits an answer into parts; the result does not depend on how the text is cut into pieces.

    Blanks around reasoning, and between calls, are dropped. An invalid call stays content: the grammar of
    tools excludes it, but an answer that is cut off may have one.
    """

    def __init__(
        self, start: Start, form: ToolFormat | None, exclusive: frozenset[str] | None = None
    ) -> None:
        """Starts reading. `form`: how tools are called; None if there are none.

        `exclusive`: the names of the tools, if the answer is either calls or content, but not both.
        """
        self._form = form
        self._exclusive = exclusive
        self._reasoning = start.reasoning
        self._end_of_reasoning = MarkerScanner([start.reasoning.end] if start.reasoning else [])
        self._begin_of_call = MarkerScanner([form.begin] if form and form.begin else [])
        self._state = "thinking" if start.open else "begin"
        self._held = ""
        #: number of calls so far
        self.calls = 0
        self._has_text = False

    def feed(self, text: str) -> list[Part]:
        """Returns the parts that more text adds."""
        self._held += text
        return self._read(last=False)

    def end(self) -> list[Part]:
        """Returns the parts that were held back, at the end of the answer."""
        return self._read(last=True)

    def _read(self, *, last: bool) -> list[Part]:
        parts: list[Part] = []
        while True:
            state = self._state
            more = getattr(self, f"_{state}")(last)
            parts += more
            if self._state == state:
                return parts

    def _begin(self, last: bool) -> list[Part]:
        """Handles the beginning, where only blanks have come."""
        if self._reasoning is None:
            self._state = "content"
            return []
        bare = self._held.lstrip()
        if bare.startswith(self._reasoning.begin):
            self._held = bare[len(self._reasoning.begin) :]
            self._state = "thinking"
        elif last or not self._reasoning.begin.startswith(bare):
            self._state = "content"
        return []

    def _thinking(self, last: bool) -> list[Part]:
        found = self._end_of_reasoning.find(self._held)
        if found is not None:
            thought, self._held = self._held[: found[0]], self._held[found[0] + len(found[1]) :]
            self._state = "after"
            return self._chunk("reasoning", thought.rstrip())
        thought = self._take(self._end_of_reasoning, last)
        return self._chunk("reasoning", thought)

    def _after(self, last: bool) -> list[Part]:
        """Handles blanks between reasoning and answer."""
        self._held = self._held.lstrip()
        if self._held or last:
            self._state = "content"
        return []

    def _content(self, last: bool) -> list[Part]:
        if self._exclusive is not None and self._form and self._form.begin and not self.calls:
            bare = self._held.lstrip()
            if not bare.startswith(self._form.begin):
                if not last and self._form.begin.startswith(bare):
                    return []
                self._form = None  # the answer is content, which may contain the marker
        if self._form is None:
            text, self._held = self._held, ""
            return self._chunk("content", text)
        if not self._form.begin:
            return self._bare_call(last)
        found = self._begin_of_call.find(self._held)
        if found is not None:
            text, self._held = self._held[: found[0]], self._held[found[0] + len(found[1]) :]
            self._state = "call"
            return self._chunk("content", text.rstrip() if self.calls == 0 else text.strip())
        text = self._take(self._begin_of_call, last)
        return self._chunk("content", text.strip() if self.calls else text)

    def _call(self, last: bool) -> list[Part]:
        assert self._form is not None
        end = self._form.end
        if not end:  # the rest of the answer is calls
            if not last:
                return []
            body, self._held, self._state = self._held, "", "content"
            calls = self._calls(body)
            return self._chunk("content", self._form.begin + body) if calls is None else calls
        first = at = self._held.find(end)
        # a text in an argument may contain the marker
        while at >= 0 and (calls := self._calls(self._held[:at])) is None:
            at = self._held.find(end, at + 1)
        if at < 0 and not last:
            return []
        self._state = "content"
        if at >= 0:
            self._held = self._held[at + len(end) :]
            return calls or []
        # there is no end marker, or no valid call before one
        body, rest = (self._held, "") if first < 0 else (self._held[:first], self._held[first + len(end) :])
        self._held = rest
        calls = self._calls(body) if first < 0 and self._form.is_closed else None
        if calls is None:
            return self._chunk("content", self._form.begin + body + ("" if first < 0 else end))
        return calls

    def _bare_call(self, last: bool) -> list[Part]:
        """Handles an answer that is a call or content as a whole: its first character decides."""
        assert self._form is not None
        bare = self._held.lstrip()
        if not last and (self._has_text or (bare and not bare.startswith(self._form.first))):
            self._has_text = True
            text, self._held = self._held, ""
            return self._chunk("content", text)
        if not last or not self._held:
            return []
        calls = self._calls(self._held)
        text, self._held = self._held, ""
        return self._chunk("content", text) if calls is None else calls

    def _calls(self, body: str) -> list[Part] | None:
        assert self._form is not None
        try:
            found: list[Part] = [
                Call(name, json.dumps(arguments, ensure_ascii=False))
                for name, arguments in self._form.read(body)
            ]
        except ValueError:
            return None
        if self._exclusive is not None and any(
            isinstance(call, Call) and call.name not in self._exclusive for call in found
        ):
            return None
        self.calls += len(found)
        return found

    def _take(self, marks: MarkerScanner, last: bool) -> str:
        """Takes the text that cannot be part of a marker, nor blanks before one."""
        end = len(self._held)
        if not last:
            end = len(self._held[: end - marks.held(self._held)].rstrip())
        taken, self._held = self._held[:end], self._held[end:]
        return taken

    @staticmethod
    def _chunk(kind: Literal["reasoning", "content"], text: str) -> list[Part]:
        return [TextChunk(kind, text)] if text else []
