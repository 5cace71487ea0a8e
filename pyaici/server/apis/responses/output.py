"""The output of a response while it is generated: its items, and the events that report how they grow."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyaici.engines.record import shared_length
from pyaici.server.answers.calls import Call, ToolCalled, ToolEnded
from pyaici.server.answers.reader import Reasoning, Text

if TYPE_CHECKING:
    from pyaici.server.answers.reader import Event, Reader
    from pyaici.server.answers.text import TextDelta, TextToken

#: numbers of JSON-RPC for errors of calls, and for all others
_JSON_RPC, _SERVER_ERROR = {"arguments": -32602, "timeout": -32001, "too_long": -32603}, -32000
#: an event, without its number
Report = dict[str, Any]
#: beginnings of ids, types of parts, and names of events, by what the text of an item is
_FORMS: dict[type[Text | Reasoning], tuple[str, str, str]] = {
    Text: ("msg", "output_text", "response.output_text"),
    Reasoning: ("rs", "reasoning_text", "response.reasoning"),
}


def new_id(prefix: str) -> str:
    """Returns an id that nobody can guess."""
    return f"{prefix}_{uuid.uuid4().hex}"


class TextItem:
    """A message, or reasoning: an item with one part, whose text grows."""

    def __init__(self, kind: type[Text | Reasoning], index: int) -> None:
        """`index`: the place of the item in the output."""
        self.kind, self.index = kind, index
        prefix, self._part, self._event = _FORMS[kind]
        self._id = new_id(prefix)
        self.text = ""
        #: log-probabilities of the text's tokens, as they are sent
        self.logprobs: list[dict[str, Any]] = []
        self._status = "in_progress"

    def wire(self) -> dict[str, Any]:
        """Returns the item."""
        content = [] if self._status == "in_progress" else [self.part()]
        if self.kind is Reasoning:
            item = {"id": self._id, "type": "reasoning", "status": self._status, "summary": []}
        else:
            item = {"id": self._id, "type": "message", "status": self._status, "role": "assistant"}
        return {**item, "content": content}

    def part(self) -> dict[str, Any]:
        """Returns the item's only part."""
        part = {"type": self._part, "text": self.text}
        return part if self.kind is Reasoning else {**part, "annotations": [], "logprobs": self.logprobs}

    def added(self) -> Iterator[Report]:
        """Yields the events of a new item."""
        yield {"type": "response.output_item.added", "output_index": self.index, "item": self.wire()}
        yield {"type": "response.content_part.added", **self._where, "part": self.part()}

    def add(self, text: str, logprobs: list[dict[str, Any]], backtrack: int = 0) -> Iterator[Report]:
        """Yields the event of a change. `backtrack`: characters dropped first, a field that is ours alone."""
        if backtrack:
            self.text = self.text[: len(self.text) - backtrack]
        self.text += text
        self.logprobs += logprobs
        report: Report = {"type": f"{self._event}.delta", **self._where, "delta": text}
        if self.kind is Text:
            report["logprobs"] = logprobs
        if backtrack:
            report["backtrack"] = backtrack
        yield report

    def end(self, status: str) -> Iterator[Report]:
        """Yields the events of the item's end. `status`: "completed", or "incomplete" if it is cut off."""
        self._status = status
        done: Report = {"type": f"{self._event}.done", **self._where, "text": self.text}
        if self.kind is Text:
            done["logprobs"] = self.logprobs
        yield done
        yield {"type": "response.content_part.done", **self._where, "part": self.part()}
        yield {"type": "response.output_item.done", "output_index": self.index, "item": self.wire()}

    @property
    def _where(self) -> dict[str, Any]:
        return {"item_id": self._id, "output_index": self.index, "content_index": 0}


class Item:
    """An item other than a text, with its fields as they are sent."""

    def __init__(self, index: int, fields: dict[str, Any]) -> None:
        """`index`: the place of the item in the output."""
        self._index, self._fields = index, fields

    def wire(self) -> dict[str, Any]:
        """Returns the item."""
        return dict(self._fields)

    def _added(self, **hidden: Any) -> Report:
        """Returns the event of a new item. `hidden`: fields that are not known in it yet."""
        item = {**self._fields, **hidden}
        return {"type": "response.output_item.added", "output_index": self._index, "item": item}

    def _event(self, kind: str, **fields: Any) -> Report:
        place = {"item_id": self._fields["id"], "output_index": self._index}
        return {"type": f"response.{kind}", **place, **fields}

    def _done(self) -> Report:
        return {"type": "response.output_item.done", "output_index": self._index, "item": self.wire()}


class CallItem(Item):
    """A call of a function, which is complete at once."""

    def __init__(self, call: Call, index: int) -> None:
        fields = {"id": new_id("fc"), "type": "function_call", "status": "completed"}
        fields |= {"call_id": f"call_{uuid.uuid4().hex[:24]}", "name": call.name}
        super().__init__(index, {**fields, "arguments": json.dumps(call.arguments, ensure_ascii=False)})

    def reports(self) -> Iterator[Report]:
        """Yields all events of the item."""
        name, arguments = self._fields["name"], self._fields["arguments"]
        yield self._added(status="in_progress", arguments="")
        yield self._event("function_call_arguments.delta", delta=arguments)
        yield self._event("function_call_arguments.done", name=name, arguments=arguments)
        yield self._done()


class ListItem(Item):
    """The tools of an MCP server, which are known at once."""

    def __init__(self, server: str, tools: list[dict[str, Any]], index: int) -> None:
        """`tools`: with `name`, `description` and `schema`."""
        listed = [
            {
                "name": tool["name"],
                "description": tool["description"],
                "input_schema": tool["schema"],
                "annotations": None,
            }
            for tool in tools
        ]
        fields = {"id": new_id("mcpl"), "type": "mcp_list_tools", "server_label": server}
        super().__init__(index, {**fields, "tools": listed, "error": None})

    def reports(self) -> Iterator[Report]:
        """Yields all events of the item."""
        yield self._added(tools=[])
        yield self._event("mcp_list_tools.in_progress")
        yield self._event("mcp_list_tools.completed")
        yield self._done()


class McpItem(Item):
    """A call of a tool of an MCP server."""

    def __init__(self, call: ToolCalled, index: int) -> None:
        fields = {"id": call.id, "type": "mcp_call", "status": "calling"}
        fields |= {"server_label": call.server, "name": call.tool, "arguments": call.arguments}
        super().__init__(index, {**fields, "output": None, "error": None, "approval_request_id": None})

    def reports(self) -> Iterator[Report]:
        """Yields the events of a new item."""
        arguments = self._fields["arguments"]
        yield self._added(status="in_progress", arguments="")
        yield self._event("mcp_call.in_progress")
        yield self._event("mcp_call_arguments.delta", delta=arguments)
        yield self._event("mcp_call_arguments.done", arguments=arguments)

    def end(self, ended: ToolEnded) -> Iterator[Report]:
        """Yields the events of the end of the call."""
        status = "completed" if ended.error is None else "failed"
        error = None if ended.error is None else _mcp_error(*ended.error)
        self._fields |= {"status": status, "output": ended.output, "error": error}
        yield self._event(f"mcp_call.{status}")
        yield self._done()


def _mcp_error(code: str, message: str) -> dict[str, Any]:
    """Returns the error of a call: of the tool itself, or of its server, with a number of JSON-RPC."""
    if code == "tool":
        return {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": message}]}
    return {"type": "mcp_protocol_error", "code": _JSON_RPC.get(code, _SERVER_ERROR), "message": message}


class Output:
    """The items of a response so far, made from the deltas of its answer.

    Only the last text can be open, and calls of tools of MCP servers. After a controller has backtracked, the
    items keep their places, and lose text at the end.
    """

    def __init__(
        self, reader: Reader, logprobs: Callable[[Iterable[TextToken]], Iterable[dict[str, Any]]] | None
    ) -> None:
        """`reader`: reads the answer. `logprobs`: writes log-probabilities; None = none are listed."""
        self._reader, self._logprobs = reader, logprobs
        self._items: list[TextItem | Item] = []
        #: the first item of the present answer: what comes before it loses no text
        self._first = 0
        #: calls under way of tools of MCP servers, by their ids
        self._called: dict[str, McpItem] = {}
        self._open: TextItem | None = None
        #: tokens whose text has not become events
        self._tokens: list[TextToken] = []
        self._reasons = reader.reasons
        #: tokens of the answer, those of its reasoning, those of the prompt that were in the cache, and those
        #: of results of tools
        self.tokens = self.reasoning_tokens = self.cached = self.read = 0
        #: log-probabilities so far, with those of the most likely tokens
        self.listed = 0
        self.logs = ""

    def wire(self) -> list[dict[str, Any]]:
        """Returns the items."""
        return [item.wire() for item in self._items]

    def add_delta(self, delta: TextDelta) -> Iterator[Report]:
        """Adds a delta of the answer, and yields the events that report it."""
        self.tokens += delta.grown
        self.cached = max(self.cached, delta.cached)
        self.read += delta.read
        if delta.begins:
            self._first = len(self._items)
        self.logs += delta.logs
        if self._reasons or self._reader.reasons:
            self.reasoning_tokens += delta.grown
        self._take_tokens(delta)
        self._reasons = self._reader.reasons
        events = delta.events
        if delta.reread:
            events = yield from self._reread(events)
        for found in events:
            if isinstance(found, Text | Reasoning):
                yield from self._add(type(found), found.text)
            elif isinstance(found, Call):
                yield from self._close()
                self._tokens.clear()
                self._items.append(call := CallItem(found, len(self._items)))
                yield from call.reports()
        for tool in delta.tools:
            yield from self._take_tool(tool)

    def list_tools(self, server: str, tools: list[dict[str, Any]]) -> Iterator[Report]:
        """Yields the events that list the tools of an MCP server: with `name`, `description` and `schema`."""
        self._items.append(listed := ListItem(server, tools, len(self._items)))
        yield from listed.reports()

    def _take_tool(self, tool: ToolCalled | ToolEnded) -> Iterator[Report]:
        """Yields the events of a call of a tool that begins or ends."""
        if isinstance(tool, ToolEnded):
            yield from self._called.pop(tool.id).end(tool)
            return
        yield from self._close()
        self._items.append(item := McpItem(tool, len(self._items)))
        self._called[tool.id] = item
        yield from item.reports()

    def end(self, *, cut: bool) -> Iterator[Report]:
        """Yields the events that end the output; without items, of an empty message.

        `cut`: the answer is cut off.
        """
        for id in list(self._called):
            yield from self._take_tool(ToolEnded(id, error=("cancelled", "nobody waits for the result")))
        if not any(isinstance(item, TextItem | CallItem) for item in self._items):
            yield from self._begin(Text)
        yield from self._close("incomplete" if cut else "completed")

    def stop(self) -> Iterator[Report]:
        """Yields the events that end open items after a failure."""
        yield from self._close("incomplete")
        for id in list(self._called):
            yield from self._take_tool(ToolEnded(id, error=("cancelled", "the response has failed")))

    def _take_tokens(self, delta: TextDelta) -> None:
        """Keeps the tokens that may belong to text."""
        if self._logprobs is None:
            return
        left = max(0, delta.backtrack_tokens - len(self._tokens))
        del self._tokens[len(self._tokens) - (delta.backtrack_tokens - left) :]
        if self._open is not None and left:
            del self._open.logprobs[max(0, len(self._open.logprobs) - left) :]
        texts = any(isinstance(found, Text) for found in delta.events)
        if texts or not (self._reasons or self._reader.reasons):
            self._tokens += delta.tokens

    def _reread(self, events: list[Event]) -> Generator[Report, None, list[Event]]:
        """Compares the events of the whole text with the items, which are texts: no calls are backtrack.

        Yields the events that drop text; returns the events that add text.
        """
        added: list[Event] = []
        for kind in (Reasoning, Text):
            present = self._items[self._first :]
            items = [item for item in present if isinstance(item, TextItem) and item.kind is kind]
            before = "".join(item.text for item in items)
            text = "".join(found.text for found in events if isinstance(found, kind))
            kept = shared_length(before, text)
            dropped = len(before) - kept
            for item in reversed(items):
                if count := min(dropped, len(item.text)):
                    dropped -= count
                    yield from item.add("", [], count)
            if kept < len(text):
                added.append(kind(text[kept:]))
        return added

    def _add(self, kind: type[Text | Reasoning], text: str) -> Iterator[Report]:
        if self._open is None or self._open.kind is not kind:
            yield from self._close()
            yield from self._begin(kind)
        assert self._open is not None
        entries: list[dict[str, Any]] = []
        if kind is Text and self._logprobs is not None:
            entries = list(self._logprobs(self._tokens))
            self.listed += sum(1 + len(entry["top_logprobs"]) for entry in entries)
            self._tokens = []
        yield from self._open.add(text, entries)

    def _begin(self, kind: type[Text | Reasoning]) -> Iterator[Report]:
        self._open = TextItem(kind, len(self._items))
        self._items.append(self._open)
        yield from self._open.added()

    def _close(self, status: str = "completed") -> Iterator[Report]:
        if self._open is not None:
            yield from self._open.end(status)
            self._open = None
