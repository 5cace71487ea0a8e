"""The answer to a request: events of a stream, and the message that they make up."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pyaici.engines.engine import FinishReason
from pyaici.server.answers.calls import Call
from pyaici.server.answers.reader import Event, Text
from pyaici.server.answers.stops import Stop
from pyaici.server.apis.messages.plan import Plan
from pyaici.server.apis.messages.requests import END_OF_ANSWER, MessagesError

#: an event of the stream; its member `type` is the event's name
ServerEvent = dict[str, Any]
StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]


@dataclass(frozen=True, slots=True)
class Usage:
    """Number of tokens of the prompt, and of the answer."""

    input_tokens: int
    output_tokens: int

    def body(self) -> dict[str, int]:
        """Returns the JSON of an answer. Caching has no separate price, so its counts are 0."""
        return {
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
        }


class Answer:
    """An answer while it is written: call `start`, `add` for what its reader finds, then `finish` or `fail`.

    Each returns the events of the stream; `message` is the whole message.
    """

    def __init__(self, plan: Plan, *, model: str, id: str | None = None) -> None:
        """Starts an empty answer. `id`: of the message; default: a new one."""
        self._plan = plan
        self._model = model
        self.id = id or f"msg_{secrets.token_hex(16)}"
        self._events: list[ServerEvent] = []
        self._blocks = 0
        #: the kind of block that is open, and blanks that may be its end, which are dropped
        self._open: Literal["text", "thinking"] | None = None
        self._blanks = ""
        self._thinking = ""
        self._calls = 0
        self._stopped_by: str | None = None

    def start_message(self, input_tokens: int) -> list[ServerEvent]:
        """Returns the first events, before any text. `input_tokens`: number of tokens of the prompt."""
        message: dict[str, Any] = {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": Usage(input_tokens, 0).body(),
        }
        return self._keep([{"type": "message_start", "message": message}, {"type": "ping"}])

    def add(self, found: Iterable[Event]) -> list[ServerEvent]:
        """Returns the events for what the answer's reader has found."""
        return self._keep(self._server_events(found))

    def finish(self, reason: FinishReason, usage: Usage) -> list[ServerEvent]:
        """Returns the last events, when the answer is complete or the model has ended."""
        events = list(self._closed())
        delta = {"stop_reason": self._stop_reason(reason), "stop_sequence": self._stop_sequence()}
        events.append({"type": "message_delta", "delta": delta, "usage": usage.body()})
        return self._keep([*events, {"type": "message_stop"}])

    def fail(self, error: MessagesError) -> list[ServerEvent]:
        """Returns the last events of an answer that failed. The client keeps what it has received."""
        return self._keep([*self._closed(), error.body()])

    def message(self) -> dict[str, Any]:
        """Returns the message that the events make up. Raises MessagesError if they end with an error."""
        return fold(self._events)

    def _keep(self, events: Iterable[ServerEvent]) -> list[ServerEvent]:
        new = list(events)
        self._events += new
        return new

    def _stop_sequence(self) -> str | None:
        """Returns the client's stop string that ended the answer; None for the usual end of an answer."""
        by = self._stopped_by
        return by if by != END_OF_ANSWER and by in self._plan.request.stop_sequences else None

    def _stop_reason(self, reason: FinishReason) -> StopReason | None:
        if self._stop_sequence() is not None:
            return "stop_sequence"
        if reason in (FinishReason.LENGTH, FinishReason.WORK):
            return "max_tokens"
        if self._calls:
            return "tool_use"
        return "end_turn" if reason in (FinishReason.EOS, FinishReason.STOP) else None

    def _server_events(self, found: Iterable[Event]) -> Iterator[ServerEvent]:
        for event in found:
            if isinstance(event, Stop):
                self._stopped_by = event.mark
            elif isinstance(event, Call):
                yield from self._closed()
                self._calls += 1
                call = {"type": "tool_use", "id": f"toolu_{secrets.token_hex(12)}", "name": event.name}
                yield self._started({**call, "input": {}})
                written = json.dumps(event.arguments, ensure_ascii=False)
                yield self._delta({"type": "input_json_delta", "partial_json": written})
                yield self._stopped()
            else:
                yield from self._text("text" if isinstance(event, Text) else "thinking", event.text)

    def _text(self, kind: Literal["text", "thinking"], text: str) -> Iterator[ServerEvent]:
        """Yields the events of more text, without blanks at the beginning and the end of a block."""
        if self._open != kind:
            yield from self._closed()
            text = text.lstrip()
            if not text:
                return
            self._open, self._thinking = kind, ""
            empty = {"text": ""} if kind == "text" else {"thinking": "", "signature": ""}
            yield self._started({"type": kind, **empty})
        text = self._blanks + text
        shown = text.rstrip()
        self._blanks = text[len(shown) :]
        if not shown:
            return
        if kind == "thinking":
            self._thinking += shown
        if kind == "text" or not self._plan.request.hides_thinking:
            yield self._delta({"type": f"{kind}_delta", kind: shown})

    def _closed(self) -> Iterator[ServerEvent]:
        """Yields the end of the open block, if there is one."""
        if self._open == "thinking":
            yield self._delta({"type": "signature_delta", "signature": signature(self._thinking)})
        if self._open is not None:
            yield self._stopped()
        self._open, self._blanks = None, ""

    def _started(self, block: Mapping[str, Any]) -> ServerEvent:
        return {"type": "content_block_start", "index": self._blocks, "content_block": dict(block)}

    def _delta(self, delta: Mapping[str, Any]) -> ServerEvent:
        return {"type": "content_block_delta", "index": self._blocks, "delta": dict(delta)}

    def _stopped(self) -> ServerEvent:
        self._blocks += 1
        return {"type": "content_block_stop", "index": self._blocks - 1}


def signature(thinking: str) -> str:
    """Returns the signature of a thinking block, as ai00 computes it. It detects accidental changes."""
    return "sig_" + hashlib.sha256(thinking.encode()).hexdigest()[:16]


def fold(events: Iterable[ServerEvent]) -> dict[str, Any]:
    """Returns the message that a stream of events makes up.

    Raises MessagesError if the stream ends with an error.
    """
    message: dict[str, Any] = {}
    written = ""  # JSON of a call's arguments
    for event in events:
        kind = event["type"]
        if kind == "message_start":
            message = {**event["message"], "content": []}
        elif kind == "content_block_start":
            message["content"].append(dict(event["content_block"]))
            written = ""
        elif kind == "content_block_delta":
            block, delta = message["content"][event["index"]], event["delta"]
            written += delta.get("partial_json", "")
            for name in ("text", "thinking", "signature"):
                if name in delta:
                    block[name] += delta[name]
        elif kind == "content_block_stop" and message["content"][event["index"]]["type"] == "tool_use":
            message["content"][event["index"]]["input"] = json.loads(written)
        elif kind == "message_delta":
            message |= {**event["delta"], "usage": event["usage"]}
        elif kind == "error":
            raise MessagesError(event["error"]["type"], event["error"]["message"])
    return message
