"""What happens to one request, on its way from the engine's thread to the task that reads it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyaici.engines.engine import BackTracked, Log, TokensAppended, VariablesChanged
from pyaici.server.http.errors import ApiError

if TYPE_CHECKING:
    from pyaici.engines.engine import Event, GenerationResult


#: What a reader may be behind by, with all answers of a request together. A token is some 300 bytes here,
#: with twenty alternatives 3000: thousands of them, minutes of a model's time. But controllers may print
#: 64 KiB in a step, and write a MiB of variables.
MAX_BACKLOG_BYTES = 16 << 20
#: of all requests: where many run, each may be behind by less
MAX_BACKLOGS_BYTES = 256 << 20
#: an event by itself, a token, one of the most likely tokens in a place; measured, and rounded up
_EVENT_BYTES, _TOKEN_BYTES, _CANDIDATE_BYTES = 200, 80, 120


class Backlog:
    """Counts the bytes of events that wait to be read, of all answers of one request."""

    def __init__(self) -> None:
        self.nbytes = 0
        #: streams that count here
        self.streams = 0


class Backlogs:
    """Says how much a request may be behind by."""

    def __init__(self) -> None:
        self._open: set[Backlog] = set()

    def join(self, backlog: Backlog) -> None:
        """A stream counts there from now on."""
        backlog.streams += 1
        self._open.add(backlog)

    def leave(self, backlog: Backlog, nbytes: int) -> None:
        """A stream is closed; so many bytes of it have not been read."""
        backlog.nbytes -= nbytes
        backlog.streams -= 1
        if not backlog.streams:
            self._open.discard(backlog)

    def is_full(self, backlog: Backlog) -> bool:
        """Whether its request is too far behind."""
        return backlog.nbytes > min(MAX_BACKLOG_BYTES, MAX_BACKLOGS_BYTES // max(1, len(self._open)))


class EngineStream:
    """What happens to one request, for one task. Closing it before its end cancels the request."""

    def __init__(self, cancel: Callable[[EngineStream], None], backlogs: Backlogs, backlog: Backlog) -> None:
        """`cancel`: ends the request at the engine. `backlog`: of the request that it is an answer of."""
        self._cancel = cancel
        self._backlogs, self._backlog = backlogs, backlog
        backlogs.join(backlog)
        self._steps: deque[tuple[list[Event], int]] = deque()
        #: about so many bytes wait to be read
        self._bytes = 0
        self._arrived = asyncio.Event()
        self._closed = False
        self._error: ApiError | None = None
        #: what became of its sequences, when there is no more to come
        self.results: list[GenerationResult] | None = None
        #: the engine's number of it
        self.number = -1

    def __aiter__(self) -> EngineStream:
        return self

    async def __anext__(self) -> list[Event]:
        """The events of the next step in which anything happened to it.

        Raises ApiError if there is no more to come though it has not ended.
        """
        while not self._steps:
            if self._error is not None:
                raise self._error
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

    def close(self) -> None:
        """Nobody wants to know more."""
        if not self._closed:
            self._closed = True
            self._backlogs.leave(self._backlog, self._bytes)
            self._steps.clear()
            self._bytes = 0
            if self.results is None and self._error is None:
                self._cancel(self)
            self._arrived.set()

    def take(self, events: list[Event], results: list[GenerationResult] | None) -> None:
        """More has happened; called in the event loop."""
        if self._closed or self._error is not None:
            return
        if events:
            nbytes = sum(map(size, events))
            self._steps.append((events, nbytes))
            self._count(nbytes)
        if results is not None:
            self.results = results
        elif self._backlogs.is_full(self._backlog):
            self._cancel(self)
            self._steps.clear()
            self._count(-self._bytes)
            self.fail(ApiError(408, "the answer was read too slowly", code="slow_reader"))
        self._arrived.set()

    def fail(self, error: ApiError) -> None:
        """There is no more to come, though it has not ended; called in the event loop."""
        if self.results is None:
            self._error = error
            self._arrived.set()


def size(event: Event) -> int:
    """About how many bytes of memory an event takes."""
    match event:
        case TokensAppended():
            candidates = sum(map(len, event.top or ()))
            tokens = len(event.tokens)
            nbytes = len(event.text) + tokens * _TOKEN_BYTES + candidates * _CANDIDATE_BYTES
        case BackTracked() | Log():
            nbytes = len(event.text)
        case VariablesChanged():
            nbytes = sum(len(name) + len(value) for name, value in event.values.items())
        case _:
            nbytes = 0
    return _EVENT_BYTES + nbytes
