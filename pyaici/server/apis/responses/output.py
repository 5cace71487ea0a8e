"""The output of a response while it is generated: its items, and the events that report how they grow."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyaici.engines.record import shared_length
from pyaici.server.answers.calls import Call
from pyaici.server.answers.reader import Reasoning, Text

if TYPE_CHECKING:
    from pyaici.server.answers.reader import Event, Reader
    from pyaici.server.answers.text import TextDelta, TextToken

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

    def add(self, text: str, logprobs: list[dict[str, Any]], retracted: int = 0) -> Iterator[Report]:
        """Yields the event of a change. `retracted`: characters dropped first, a field that is ours alone."""
        if retracted:
            self.text = self.text[: len(self.text) - retracted]
        self.text += text
        self.logprobs += logprobs
        report: Report = {"type": f"{self._event}.delta", **self._where, "delta": text}
        if self.kind is Text:
            report["logprobs"] = logprobs
        if retracted:
            report["retracted"] = retracted
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


class CallItem:
    """A call of a function, which is complete at once."""

    def __init__(self, call: Call, index: int) -> None:
        self._id, self._call_id = new_id("fc"), f"call_{uuid.uuid4().hex[:24]}"
        self._name, self._index = call.name, index
        self._arguments = json.dumps(call.arguments, ensure_ascii=False)

    def wire(self, status: str = "completed") -> dict[str, Any]:
        """Returns the item; its arguments are left out while it is in progress."""
        return {
            "id": self._id,
            "type": "function_call",
            "status": status,
            "call_id": self._call_id,
            "name": self._name,
            "arguments": self._arguments if status == "completed" else "",
        }

    def reports(self) -> Iterator[Report]:
        """Yields all events of the item."""
        place = {"item_id": self._id, "output_index": self._index}
        arguments = "response.function_call_arguments"
        item = {"output_index": self._index}
        yield {"type": "response.output_item.added", **item, "item": self.wire("in_progress")}
        yield {"type": f"{arguments}.delta", **place, "delta": self._arguments}
        yield {"type": f"{arguments}.done", **place, "name": self._name, "arguments": self._arguments}
        yield {"type": "response.output_item.done", **item, "item": self.wire()}


class Output:
    """The items of a response so far, made from the deltas of its answer.

    Only the last item can be open. After a controller has backtracked, the items keep their places, and lose
    text at the end.
    """

    def __init__(
        self, reader: Reader, logprobs: Callable[[Iterable[TextToken]], Iterable[dict[str, Any]]] | None
    ) -> None:
        """`reader`: reads the answer. `logprobs`: writes log-probabilities; None = none are listed."""
        self._reader, self._logprobs = reader, logprobs
        self._items: list[TextItem | CallItem] = []
        self._open: TextItem | None = None
        #: tokens whose text has not become events
        self._tokens: list[TextToken] = []
        self._reasons = reader.reasons
        #: tokens of the answer, those of its reasoning, and those of the prompt that were in the cache
        self.tokens = self.reasoning_tokens = self.cached = 0
        #: log-probabilities so far, with those of the most likely tokens
        self.listed = 0
        self.logs = ""

    def wire(self) -> list[dict[str, Any]]:
        """Returns the items."""
        return [item.wire() for item in self._items]

    def take(self, delta: TextDelta) -> Iterator[Report]:
        """Adds a delta of the answer, and yields the events that report it."""
        self.tokens += delta.grown
        self.cached = max(self.cached, delta.cached)
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

    def end(self, *, cut: bool) -> Iterator[Report]:
        """Yields the events that end the output; without items, of an empty message.

        `cut`: the answer is cut off.
        """
        if not self._items:
            yield from self._begin(Text)
        yield from self._close("incomplete" if cut else "completed")

    def stop(self) -> Iterator[Report]:
        """Yields the events that end the open item after a failure."""
        yield from self._close("incomplete")

    def _take_tokens(self, delta: TextDelta) -> None:
        """Keeps the tokens that may belong to text."""
        if self._logprobs is None:
            return
        left = max(0, delta.retracted_tokens - len(self._tokens))
        del self._tokens[len(self._tokens) - (delta.retracted_tokens - left) :]
        if self._open is not None and left:
            del self._open.logprobs[max(0, len(self._open.logprobs) - left) :]
        texts = any(isinstance(found, Text) for found in delta.events)
        if texts or not (self._reasons or self._reader.reasons):
            self._tokens += delta.tokens

    def _reread(self, events: list[Event]) -> Generator[Report, None, list[Event]]:
        """Compares the events of the whole text with the items, which are texts: no calls are retracted.

        Yields the events that drop text; returns the events that add text.
        """
        added: list[Event] = []
        for kind in (Reasoning, Text):
            items = [item for item in self._items if isinstance(item, TextItem) and item.kind is kind]
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
