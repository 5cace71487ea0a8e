"""Answers in which tools of MCP servers are called: a script makes the calls, and appends their results."""

from __future__ import annotations

import contextlib
import itertools
import json
import secrets
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyaici.engines.engine import Backtracked, Finished, Started, TokensAppended
from pyaici.server.answers.arguments import guess_json
from pyaici.server.answers.calls import Call, ToolCalled, ToolEnded
from pyaici.server.answers.text import AnswerText, TextDelta
from pyaici.server.http.errors import ApiError
from pyaici.server.scheduling.streams import CallEnded, CallMade

if TYPE_CHECKING:
    from pyaici.engines.engine import Event
    from pyaici.server.answers.plan import AnswerPlan
    from pyaici.server.answers.reader import Event as AnswerEvent
    from pyaici.server.answers.reader import Reader
    from pyaici.server.service import Job, Service

#: The calls that the server answers for the script. An answer has ended: which tools has the model called in
#: it? And: the next answer begins. Names of tools have a dot.
CALLS_OF_ANSWER, NEXT_ANSWER = "calls_of_answer", "next_answer"
OFFERED: Sequence[dict[str, Any]] = (
    {"name": CALLS_OF_ANSWER, "description": "Returns the calls in the answer that has ended"},
    {"name": NEXT_ANSWER, "description": "Tells that the model begins a new answer"},
)
#: how a script's `generate` says that its limits have ended an answer
_CUT = ("max_tokens", "max_bytes")
#: a place that no sequence reaches
_NOWHERE = 1 << 62


@dataclass(frozen=True, slots=True)
class ServerTool:
    """A tool of an MCP server. `name`: as the model calls it."""

    server: str
    tool: str
    name: str

    @property
    def call(self) -> str:
        """The name of the call that reaches the tool."""
        return f"{self.server}.{self.tool}"


@dataclass(frozen=True, slots=True)
class ToolLoop:
    """The tools that a script may call for an answer, and how it is read.

    `tools`: by the names that the model knows. `later`: the plan of all answers but the first.
    """

    tools: Mapping[str, ServerTool]
    later: AnswerPlan


async def tool_deltas(
    service: Service, job: Job, loop: ToolLoop, reader: Reader
) -> AsyncGenerator[TextDelta, None]:
    """Does what `answer_deltas` does for a job whose script calls tools: several answers become one.

    What the script appends between two of them is left out, and counted in `TextDelta.read`.
    """
    answers = _Answers(service, job, loop, reader)
    async with service.run(job) as stream:
        yield TextDelta()
        async for events in stream:
            for delta in answers.follow(events):
                yield delta
                if delta.finish is not None:
                    return
            for id, value in answers.replies():
                with contextlib.suppress(ApiError):  # nobody waits for it any more
                    await service.calls.answer(id, job.user, value, None)


class _Answers:
    """The answers of one sequence."""

    def __init__(self, service: Service, job: Job, loop: ToolLoop, reader: Reader) -> None:
        self._loop, self._reader = loop, reader
        self._servers = {tool.server for tool in loop.tools.values()}
        self._vocabulary = service.model.vocabulary.tokens
        self._param = job.controller.param if job.controller else None
        self._text = AnswerText(self._vocabulary, reader, self._param)
        self._root = -1
        #: tokens after the prompt, and where the present answer begins; NOWHERE: it has not begun
        self._size, self._begin = 0, 0
        #: calls of tools in the present answer, and whether it calls functions, which the client answers
        self._calls: list[Call] = []
        self._functions = False
        #: whether a limit of the script has ended the answer
        self._cut = False
        #: the script's question, with its arguments, and the answer to it
        self._question: tuple[CallMade, dict[str, Any]] | None = None
        self._replies: list[tuple[str, Any]] = []
        #: calls of tools under way: their ids for clients, by those of the runtime
        self._called: dict[str, str] = {}
        self._ids = _ids_of_round()

    def follow(self, events: Sequence[Event]) -> Iterator[TextDelta]:
        """Yields what a step of the engine, or an event of a call, changes. Raises ApiError."""
        kept: list[Event] = []
        before = self._size
        for event in events:
            if isinstance(event, CallMade | CallEnded):
                yield from self._tell(event)
            elif self._is_own(event):
                kept.append(event)
        if kept or self._size != before:
            own = sum(len(event.tokens) for event in kept if isinstance(event, TokensAppended))
            delta = replace(self._text.follow(kept), read=max(0, self._size - before - own))
            over = self._reader.stop is not None or any(isinstance(event, Finished) for event in kept)
            yield self._without_calls(delta, over=over)
        yield from self._ask()

    def replies(self) -> Iterator[tuple[str, Any]]:
        """Yields ids of the script's questions, and the answers to them."""
        while self._replies:
            yield self._replies.pop(0)

    def _is_own(self, event: Event) -> bool:
        """Returns whether an event is about the present answer; counts the tokens of the sequence."""
        if isinstance(event, Started) and self._root < 0:
            self._root = event.seq
        if not isinstance(event, TokensAppended | Backtracked) or event.seq != self._root:
            return True
        own = self._size >= self._begin
        if isinstance(event, TokensAppended):
            self._size += len(event.tokens)
        else:
            self._size -= event.count
            self._begin = min(self._begin, self._size) if own else self._begin
        return own

    def _tell(self, event: CallMade | CallEnded) -> Iterator[TextDelta]:
        """Yields a call of a tool, or its end; keeps a question of the script."""
        if isinstance(event, CallEnded):
            if (id := self._called.pop(event.id, None)) is not None:
                yield TextDelta(tools=[_end_of_call(id, event)])
        elif event.wanted:
            arguments = guess_json(event.arguments)
            self._question = event, arguments if isinstance(arguments, dict) else {}
        elif (place := event.name.partition("."))[0] in self._servers:
            id = self._called[event.id] = next(self._ids)
            yield TextDelta(tools=[ToolCalled(id, place[0], place[2], event.arguments)])

    def _ask(self) -> Iterator[TextDelta]:
        """Answers the script's question; yields what remains of an answer that has ended."""
        if self._question is None:
            return
        event, arguments = self._question
        place = arguments.get("at")
        place = place if isinstance(place, int) else self._size
        if event.name == NEXT_ANSWER:
            self._begin = place
            self._ids = _ids_of_round()
            self._text = AnswerText(self._vocabulary, self._reader, self._param, self._root)
            self._reader.renew(self._loop.later)
            self._replies.append((event.id, None))
            yield TextDelta(begins=True)
        elif place > self._size and self._begin != _NOWHERE:
            return  # the engine has not reported all tokens of the answer
        else:
            yield self._without_calls(self._text.end(), over=False)
            self._begin = _NOWHERE
            self._cut = arguments.get("finish_reason") in _CUT
            calls = [] if self._cut else [self._wire(call) for call in self._calls]
            self._replies.append((event.id, {"calls": calls, "more": bool(calls) and not self._functions}))
            self._calls = []
        self._question = None

    def _wire(self, call: Call) -> dict[str, Any]:
        return {"call": self._loop.tools[call.name].call, "name": call.name, "arguments": call.arguments}

    def _without_calls(self, delta: TextDelta, *, over: bool) -> TextDelta:
        """Returns a delta without the calls that are the script's; `over`: whether all is over."""
        events: list[AnswerEvent] = []
        for event in delta.events:
            if isinstance(event, Call) and event.name in self._loop.tools:
                self._calls.append(event)
            else:
                self._functions = self._functions or isinstance(event, Call)
                events.append(event)
        finish = ("length" if self._cut else delta.finish) if over else None
        return replace(delta, events=events, finish=finish)


def _ids_of_round() -> Iterator[str]:
    """Returns ids that nobody can guess, for the calls of one answer."""
    common = f"mcp_{secrets.token_hex(16)}"
    return (f"{common}_{number}" for number in itertools.count())


def round_of(id: str | None) -> str:
    """Returns what the ids of the calls of one answer have in common. Ids of other servers are one round."""
    return (id or "").rpartition("_")[0]


def _end_of_call(id: str, event: CallEnded) -> ToolEnded:
    """Returns the end of a call of a tool, with its result as a text."""
    found = guess_json(event.result)
    if isinstance(found, dict) and "value" in found:
        value = found["value"]
        return ToolEnded(id, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    error = found.get("error", {}) if isinstance(found, dict) else {}
    return ToolEnded(id, error=(event.code, str(error.get("message", "the call was cancelled"))))
