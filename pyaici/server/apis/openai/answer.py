"""One answer of a chat as far as it has come."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyaici.server.apis.openai.reader import AnswerReader, Call, Part, Words
from pyaici.server.apis.text import common_length

if TYPE_CHECKING:
    from pyaici.server.apis.openai.chat_plan import ChatPlan
    from pyaici.server.apis.text import TextDelta, TextToken


@dataclass(frozen=True, slots=True)
class News:
    """What is new in an answer."""

    parts: list[Part]
    #: characters at the end of the content, and of the reasoning, that do not count any more
    retracted: int = 0
    retracted_reasoning: int = 0


class ChatAnswer:
    """What an answer's message has by now."""

    def __init__(self, plan: ChatPlan) -> None:
        self._plan = plan
        self._reader = AnswerReader(plan.start, plan.form)
        #: as the model wrote it
        self._raw = ""
        self.content = ""
        self.reasoning = ""
        self.calls: list[dict[str, Any]] = []
        self.tokens: list[TextToken] = []
        self.finish: str | None = None

    def take(self, said: TextDelta) -> News:
        """More of the answer; a controller may have taken back a part of it first."""
        del self.tokens[len(self.tokens) - said.retracted_tokens :]
        self.tokens += said.tokens
        self._raw = self._raw[: len(self._raw) - said.retracted] + said.text
        if said.retracted:
            # it is read again: what has gone may have been the mark that ends reasoning
            self._reader = AnswerReader(self._plan.start, self._plan.form)
        parts = self._reader.feed(self._raw if said.retracted else said.text)
        if said.finish is not None:
            parts += self._reader.end()
            # an answer that is cut off may lack more calls
            called = self._reader.calls and said.finish != "length"
            self.finish = "tool_calls" if called else said.finish
        return self._reread(parts) if said.retracted else self._add(parts)

    def _add(self, parts: list[Part]) -> News:
        for part in parts:
            if isinstance(part, Call):
                function = {"name": part.name, "arguments": part.arguments}
                call_id = f"call_{uuid.uuid4().hex[:24]}"
                self.calls.append({"id": call_id, "type": "function", "function": function})
            elif part.kind == "reasoning":
                self.reasoning += part.text
            else:
                self.content += part.text
        return News(parts)

    def _reread(self, parts: list[Part]) -> News:
        """All parts of what is there now. There are no calls: a grammar that has any takes nothing back."""
        said = {"reasoning": self.reasoning, "content": self.content}
        now = dict.fromkeys(said, "")
        for part in parts:
            assert isinstance(part, Words)
            now[part.kind] += part.text
        kept = {kind: common_length(said[kind], now[kind]) for kind in said}
        self.reasoning, self.content = now["reasoning"], now["content"]
        return News(
            [
                *([Words("reasoning", more)] if (more := now["reasoning"][kept["reasoning"] :]) else []),
                *([Words("content", more)] if (more := now["content"][kept["content"] :]) else []),
            ],
            len(said["content"]) - kept["content"],
            len(said["reasoning"]) - kept["reasoning"],
        )

    def message(self) -> dict[str, Any]:
        """As OpenAI's API has it; `reasoning_content` is an addition of others."""
        message: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.calls:
            message |= {"content": self.content or None, "tool_calls": self.calls}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        return message
