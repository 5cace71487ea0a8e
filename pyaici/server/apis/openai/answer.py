"""The state of one chat answer while it is generated."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyaici.engines.record import shared_length
from pyaici.server.apis.openai.channels import ChannelReader
from pyaici.server.apis.openai.reader import AnswerReader, Call, Part, TextChunk

if TYPE_CHECKING:
    from pyaici.server.apis.openai.chat_plan import ChatPlan
    from pyaici.server.apis.text import TextDelta, TextToken


@dataclass(frozen=True, slots=True)
class MessageChange:
    """The change of an answer in one step."""

    parts: list[Part]
    #: characters at the end of the content, and of the reasoning, that are no longer valid
    retracted: int = 0
    retracted_reasoning: int = 0


class ChatAnswer:
    """The message of an answer so far: content, reasoning and calls."""

    def __init__(self, plan: ChatPlan) -> None:
        self._plan = plan
        self._reader = self._new_reader()
        #: the text as the model wrote it
        self._raw = ""
        self.content = ""
        self.reasoning = ""
        self.calls: list[dict[str, Any]] = []
        self.tokens: list[TextToken] = []
        self.finish: str | None = None
        self.logs = ""

    def _new_reader(self) -> AnswerReader:
        plan = self._plan
        kind = ChannelReader if plan.start.channels else AnswerReader
        return kind(plan.start, plan.form, plan.exclusive)

    def take(self, delta: TextDelta) -> MessageChange:
        """Adds a delta of the answer, which may first remove text after backtracking."""
        self.logs += delta.logs
        del self.tokens[len(self.tokens) - delta.retracted_tokens :]
        self.tokens += delta.tokens
        self._raw = self._raw[: len(self._raw) - delta.retracted] + delta.text
        if delta.retracted:
            # read everything again: the removed text may contain the marker that ends reasoning
            self._reader = self._new_reader()
        parts = self._reader.feed(self._raw if delta.retracted else delta.text)
        if delta.finish is not None:
            parts += self._reader.end()
            # an answer that is cut off may lack further calls
            called = self._reader.calls and delta.finish != "length"
            self.finish = "tool_calls" if called else delta.finish
        return self._reread(parts) if delta.retracted else self._add(parts)

    def _add(self, parts: list[Part]) -> MessageChange:
        for part in parts:
            if isinstance(part, Call):
                function = {"name": part.name, "arguments": part.arguments}
                call_id = f"call_{uuid.uuid4().hex[:24]}"
                self.calls.append({"id": call_id, "type": "function", "function": function})
            elif part.kind == "reasoning":
                self.reasoning += part.text
            else:
                self.content += part.text
        return MessageChange(parts)

    def _reread(self, parts: list[Part]) -> MessageChange:
        """Compares the parts of the whole text with those sent.

        There are no calls: the grammar of tools never backtracks.
        """
        sent = {"reasoning": self.reasoning, "content": self.content}
        now = dict.fromkeys(sent, "")
        for part in parts:
            assert isinstance(part, TextChunk)
            now[part.kind] += part.text
        kept = {kind: shared_length(sent[kind], now[kind]) for kind in sent}
        self.reasoning, self.content = now["reasoning"], now["content"]
        return MessageChange(
            [
                *([TextChunk("reasoning", more)] if (more := now["reasoning"][kept["reasoning"] :]) else []),
                *([TextChunk("content", more)] if (more := now["content"][kept["content"] :]) else []),
            ],
            len(sent["content"]) - kept["content"],
            len(sent["reasoning"]) - kept["reasoning"],
        )

    def message(self, *, reasoning: bool = True) -> dict[str, Any]:
        """Returns the message in the format of OpenAI's API; `reasoning` has two names in other servers."""
        message: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.calls:
            message |= {"content": self.content or None, "tool_calls": self.calls}
        if self.reasoning and reasoning:
            message |= {"reasoning_content": self.reasoning, "reasoning": self.reasoning}
        return message
