"""The state of one chat answer while it is generated."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyaici.engines.record import shared_length
from pyaici.server.answers.calls import Call, ToolCalled, ToolEnded
from pyaici.server.answers.reader import Event, Reader, Reasoning, Text

if TYPE_CHECKING:
    from pyaici.server.answers.text import TextDelta, TextToken


@dataclass(frozen=True, slots=True)
class MessageChange:
    """The change of an answer in one step."""

    events: list[Event]
    #: characters at the end of the content, and of the reasoning, that are no longer valid
    backtrack: int = 0
    backtrack_reasoning: int = 0
    #: what is new about calls of tools of MCP servers
    mcp_calls: Sequence[dict[str, Any]] = ()


class ChatAnswer:
    """The message of an answer so far: content, reasoning and calls."""

    def __init__(self, reader: Reader) -> None:
        """`reader`: the one that reads the answer's deltas."""
        self.reader = reader
        self.content = ""
        self.reasoning = ""
        self.calls: list[dict[str, Any]] = []
        #: calls of tools of MCP servers
        self.mcp_calls: list[dict[str, Any]] = []
        #: where the present answer begins in the content, and in the reasoning
        self._begins = 0, 0
        self.tokens: list[TextToken] = []
        self.finish: str | None = None
        self.logs = ""

    def add_delta(self, delta: TextDelta) -> MessageChange:
        """Adds a delta of the answer, which may first remove text after backtracking."""
        self.logs += delta.logs
        if delta.begins:
            self._begins = len(self.content), len(self.reasoning)
        del self.tokens[len(self.tokens) - delta.backtrack_tokens :]
        self.tokens += delta.tokens
        change = self._reread(delta.events) if delta.reread else self._add(delta.events)
        if delta.finish is not None:
            # an answer that is cut off may lack further calls
            called = self.calls and delta.finish != "length"
            self.finish = "tool_calls" if called else delta.finish
        return replace(change, mcp_calls=[self._take_tool(tool) for tool in delta.tools])

    def _take_tool(self, tool: ToolCalled | ToolEnded) -> dict[str, Any]:
        """Adds a call of a tool of an MCP server, or its end. Returns what is new about it, for a stream."""
        index = next(
            (i for i, call in enumerate(self.mcp_calls) if call["id"] == tool.id), len(self.mcp_calls)
        )
        if isinstance(tool, ToolCalled):
            new: dict[str, Any] = {"id": tool.id, "type": "mcp", "server_label": tool.server}
            new |= {"name": tool.tool, "arguments": tool.arguments}
            self.mcp_calls.append({**new, "output": None, "error": None})
        else:
            error = tool.error and {"code": tool.error[0], "message": tool.error[1]}
            new = {"error": error} if error else {"output": tool.output}
            self.mcp_calls[index] |= new
        return {"index": index, **new}

    def _add(self, events: list[Event]) -> MessageChange:
        for event in events:
            if isinstance(event, Call):
                arguments = json.dumps(event.arguments, ensure_ascii=False)
                function = {"name": event.name, "arguments": arguments}
                call_id = f"call_{uuid.uuid4().hex[:24]}"
                self.calls.append({"id": call_id, "type": "function", "function": function})
            elif isinstance(event, Reasoning):
                self.reasoning += event.text
            elif isinstance(event, Text):
                self.content += event.text
        return MessageChange(events)

    def _reread(self, events: list[Event]) -> MessageChange:
        """Compares the events of the whole text with those sent.

        There are no calls: the grammar of tools never backtracks.
        """
        texts, thoughts = self._begins
        content = self.content[:texts]
        content += "".join(event.text for event in events if isinstance(event, Text))
        reasoning = self.reasoning[:thoughts]
        reasoning += "".join(event.text for event in events if isinstance(event, Reasoning))
        kept, kept_reasoning = shared_length(self.content, content), shared_length(self.reasoning, reasoning)
        change = MessageChange(
            [
                *([Reasoning(reasoning[kept_reasoning:])] if kept_reasoning < len(reasoning) else []),
                *([Text(content[kept:])] if kept < len(content) else []),
            ],
            len(self.content) - kept,
            len(self.reasoning) - kept_reasoning,
        )
        self.reasoning, self.content = reasoning, content
        return change

    def message(self, *, reasoning: bool = True) -> dict[str, Any]:
        """Returns the message in the format of OpenAI's API; `reasoning` has two names in other servers."""
        message: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.calls:
            message |= {"content": self.content or None, "tool_calls": self.calls}
        if self.mcp_calls:
            message["mcp_calls"] = self.mcp_calls
        if self.reasoning and reasoning:
            message |= {"reasoning_content": self.reasoning, "reasoning": self.reasoning}
        return message
