"""Reads answers in channels: messages, each with a header, as gpt-oss writes them (OpenAI's harmony)."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Literal

from pyaici.server.apis.openai.reader import AnswerReader, Call, Part
from pyaici.server.apis.stops import MarkerScanner
from pyaici.server.apis.text import split_json

if TYPE_CHECKING:
    from pyaici.server.apis.openai.grammar import Start
    from pyaici.server.apis.openai.tool_format import ToolFormat

CHANNEL, MESSAGE, END, START = "<|channel|>", "<|message|>", "<|end|>", "<|start|>"
#: the headers of reasoning and of the answer, and the beginning of each further message
ANALYSIS, FINAL, NEXT = f"{CHANNEL}analysis{MESSAGE}", f"{CHANNEL}final{MESSAGE}", f"{START}assistant"
#: headers with which an answer may begin: templates write the recipient in front of the channel
_HEADS = (CHANNEL, START, "to=")
_NAME = re.compile(r"to=(?:functions\.)?([^\s<]+)")


class ChannelReader(AnswerReader):
    """Splits an answer in channels into parts; the result does not depend on how the text is cut into pieces.

    The channel `analysis` is reasoning, all others are content; messages of the same kind are one paragraph
    each. A message to a function is a call. Headers are no part of the answer.
    """

    def __init__(
        self, start: Start, form: ToolFormat | None, exclusive: frozenset[str] | None = None
    ) -> None:
        """See `AnswerReader`. `start.open`: the prompt has the header of the first message."""
        super().__init__(start, form, exclusive)
        self._state = "body" if start.open else "first"
        self._kind: Literal["reasoning", "content"] = "content"
        self._ends = MarkerScanner([END, START])
        #: the function that the message calls
        self._name = ""
        #: kinds that have had text, and whether the message is a further one of its kind without text so far
        self._kinds: set[str] = set()
        self._further = False

    def _first(self, last: bool) -> list[Part]:
        """Handles the beginning: an answer without a header is content."""
        bare = self._held.lstrip()
        if any(bare.startswith(head) for head in _HEADS):
            self._state = "header"
        elif last or not any(head.startswith(bare) for head in _HEADS):
            self._state = "body"
        return []

    def _header(self, last: bool) -> list[Part]:
        head, mark, rest = self._held.partition(MESSAGE)
        if not mark:
            if last:
                self._held = ""
            return []
        self._held = rest
        name = _NAME.search(head)
        if name is not None and self._form is not None:
            self._name, self._state = name[1], "call"
            return []
        self._kind = "reasoning" if f"{CHANNEL}analysis" in head else "content"
        self._further = self._kind in self._kinds
        self._state = "body"
        return []

    def _body(self, last: bool) -> list[Part]:
        found = self._ends.find(self._held)
        if found is not None:
            text, self._held = self._held[: found[0]], self._held[found[0] + len(found[1]) :]
            self._state = "header"
        else:
            end = len(self._held) - (0 if last else self._ends.held(self._held))
            text, self._held = self._held[:end], self._held[end:]
        if not text:
            return []
        gap = "\n\n" if self._further else ""
        self._further = False
        self._kinds.add(self._kind)
        return self._chunk(self._kind, gap + text)

    def _call(self, last: bool) -> list[Part]:
        """Handles the arguments, which end with the answer; a further message may follow."""
        assert self._form is not None
        if not last:
            return []
        body, self._held = self._held, ""
        try:
            arguments, rest = split_json(body)
            whole = not rest or rest.startswith((END, START))
        except ValueError:
            whole = False
        if not whole:
            self._state = "header"
            return self._chunk("content", f"{self._form.begin}{self._name} {body}")
        self._held, self._state = rest, "header"
        self.calls += 1
        return [Call(self._name, json.dumps(arguments, ensure_ascii=False))]
