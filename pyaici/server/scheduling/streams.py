"""Carries the events of one request from the engine's thread to the task that reads them."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyaici.engines.engine import Backtracked, Event, Log, TokensAppended, VariablesChanged
from pyaici.server.http.errors import ApiError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from aicirt.contract.errors import WorkerDiedError
    from pyaici.engines.engine import GenerationResult


#: Most bytes of unread events of one request, for all of its answers together. A token takes about 300 bytes,
#: or 3000 with twenty alternatives: the limit is thousands of tokens, or minutes of a model's time. But
#: controllers may print 64 KiB in a step, and write a MiB of variables.
MAX_BACKLOG_BYTES = 16 << 20
#: Most bytes of unread events of all requests. If many requests run, each may have fewer.
MAX_BACKLOGS_BYTES = 256 << 20
#: bytes of an event by itself, of a token, and of one of the most likely tokens; measured, and rounded up
_EVENT_BYTES, _TOKEN_BYTES, _CANDIDATE_BYTES = 200, 80, 120


@dataclass(frozen=True, slots=True)
class StepTimed(Event):
    """The time of the step whose events come before it, for requests with `count_allowed`."""

    seconds: float
    #: the part that controllers and masks added; None if the engine does not measure it
    control_seconds: float | None


@dataclass(frozen=True, slots=True)
class CallMade(Event):
    """A controller of the request has made a call. Calls belong to all its sequences: `seq` is -1."""

    id: str
    name: str
    #: JSON
    arguments: str
    #: whether the client is to answer it
    wanted: bool


@dataclass(frozen=True, slots=True)
class CallEnded(Event):
    """A call has its answer, or needs none any more."""

    id: str
    #: of the error, "" without one
    code: str
    seconds: float
    #: of the result
    nbytes: int
    #: of a job that wants results: {"value": ...} or {"error": ...} in JSON
    result: str = ""


class Backlog:
    """Counts the bytes of unread events, over all answers of one request."""

    def __init__(self) -> None:
        self.nbytes = 0
        #: streams that count their bytes here
        self.streams = 0


class Backlogs:
    """Limits the unread bytes of each request by how many requests are open."""

    def __init__(self) -> None:
        self._open: set[Backlog] = set()

    def join(self, backlog: Backlog) -> None:
        """Registers a stream that counts its bytes in `backlog`."""
        backlog.streams += 1
        self._open.add(backlog)

    def leave(self, backlog: Backlog, nbytes: int) -> None:
        """Removes a closed stream that had `nbytes` unread bytes."""
        backlog.nbytes -= nbytes
        backlog.streams -= 1
        if not backlog.streams:
            self._open.discard(backlog)

    def is_full(self, backlog: Backlog) -> bool:
        """Tells whether the request has more unread bytes than it may have."""
        return backlog.nbytes > min(MAX_BACKLOG_BYTES, MAX_BACKLOGS_BYTES // max(1, len(self._open)))


class EngineStream:
    """The events of one engine request, for one reading task. Closing it early cancels the request."""

    def __init__(self, cancel: Callable[[EngineStream], None], backlogs: Backlogs, backlog: Backlog) -> None:
        """Opens the stream. `cancel` ends the request at the engine.

        `backlog`: the unread bytes of the request that this stream is an answer of.
        """
        self._cancel = cancel
        self._backlogs, self._backlog = backlogs, backlog
        backlogs.join(backlog)
        self._steps: deque[tuple[list[Event], int]] = deque()
        #: approximate size of the unread events in bytes
        self._bytes = 0
        self._arrived = asyncio.Event()
        self._closed = False
        #: why the stream failed before the request ended; else None
        self.error: ApiError | None = None
        #: results of all sequences; None until the request has ended
        self.results: list[GenerationResult] | None = None
        #: pid of the worker that runs the request's controller
        self.worker: int | None = None
        #: the call that adds the request to the engine, and the error if the worker died before it
        self.starting: Future[None] | None = None
        self.lost: WorkerDiedError | None = None
        #: the engine's number of the request
        self.number = -1
        #: called with the seconds between two steps that have tokens; when the last of these came
        self.on_gap: Callable[[float], None] | None = None
        self._last_tokens = 0.0
        #: called when all its sequences wait for something outside (True), and when one goes on (False)
        self.on_parked: Callable[[bool], None] | None = None
        #: whether the reader wants the times of steps
        self.timed = False

    def __aiter__(self) -> EngineStream:
        return self

    async def __anext__(self) -> list[Event]:
        """Returns the events of the next step that has events of this request.

        Raises ApiError if the stream failed before the request ended.
        """
        while not self._steps:
            if self.error is not None:
                raise self.error
            if self.results is not None or self._closed:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        events, nbytes = self._steps.popleft()
        self._count(-nbytes)
        return events

    def _count(self, nbytes: int) -> None:
        self._bytes += nbytes
        self._backlog.nbytes += nbytes

    @property
    def open(self) -> bool:
        """Whether the request goes on, as far as the reader knows."""
        return not self._closed and self.results is None and self.error is None

    def close(self) -> None:
        """Stops reading, and cancels the request if it has not ended."""
        if not self._closed:
            if self.open:
                self._cancel(self)
            self._closed = True
            self._backlogs.leave(self._backlog, self._bytes)
            self._steps.clear()
            self._bytes = 0
            self._arrived.set()

    def add_events(self, events: list[Event], results: list[GenerationResult] | None) -> None:
        """Adds the events of a step; call it in the event loop. `results`: given once the request ends."""
        if self._closed or self.error is not None:
            return
        if events:
            self._measure(events)
            nbytes = sum(map(size, events))
            self._steps.append((events, nbytes))
            self._count(nbytes)
        if results is not None:
            self.results = results
        elif self._backlogs.is_full(self._backlog):
            self._cancel(self)
            self._steps.clear()
            self._count(-self._bytes)
            self.fail(ApiError(408, "the client read the answer too slowly", code="slow_reader"))
        self._arrived.set()

    def tell_parked(self, parked: bool) -> None:
        """Says that all sequences of the request wait, or no longer; call it in the event loop."""
        if self.on_parked is not None and self.open:
            self.on_parked(parked)

    def _measure(self, events: list[Event]) -> None:
        if self.on_gap is not None and any(isinstance(event, TokensAppended) for event in events):
            now = time.monotonic()
            if self._last_tokens:
                self.on_gap(now - self._last_tokens)
            self._last_tokens = now

    def fail(self, error: ApiError) -> None:
        """Ends the stream with an error, unless it has ended already; call it in the event loop."""
        if self.results is None and self.error is None:
            self.error = error
            self._arrived.set()


def size(event: Event) -> int:
    """Returns about how many bytes of memory an event takes."""
    match event:
        case TokensAppended():
            candidates = sum(map(len, event.top_logprobs or ()))
            tokens = len(event.tokens)
            nbytes = sys.getsizeof(event.text) + tokens * _TOKEN_BYTES + candidates * _CANDIDATE_BYTES
        case Backtracked() | Log():
            nbytes = sys.getsizeof(event.text)
        case CallMade():
            nbytes = sys.getsizeof(event.arguments)
        case CallEnded():
            nbytes = sys.getsizeof(event.result)
        case VariablesChanged():
            nbytes = sum(len(name) + len(value) for name, value in event.values.items())
        case _:
            nbytes = 0
    return _EVENT_BYTES + nbytes
