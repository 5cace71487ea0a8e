"""Runs an engine in a thread of its own: requests come from tasks of an event loop, events go there."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from aicirt.errors import AiciError
from pyaici.engines.events import Finished

if TYPE_CHECKING:
    from pyaici.engines.engine import Engine
    from pyaici.engines.events import Event
    from pyaici.engines.request import GenerationResult, Request

_log = logging.getLogger("aicirt.server")
Result = TypeVar("Result")
#: steps of one request that its reader has not taken yet: far more than any request has. Bounds memory
MAX_BACKLOG = 100_000
#: an engine that fails so often in a row will not recover
MAX_FAILURES = 3


class EngineStream:
    """What happens to one request, for one task. Closing it before its end cancels the request."""

    def __init__(self, thread: EngineThread) -> None:
        self._thread = thread
        self._steps: deque[list[Event]] = deque()
        self._arrived = asyncio.Event()
        self._closed = False
        #: what became of its sequences, when there is no more to come
        self.results: list[GenerationResult] | None = None
        #: the engine's number of it
        self.number = -1

    def __aiter__(self) -> EngineStream:
        return self

    async def __anext__(self) -> list[Event]:
        """The events of the next step in which anything happened to it."""
        while not self._steps:
            if self.results is not None or self._closed:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        return self._steps.popleft()

    def close(self) -> None:
        """Nobody wants to know more."""
        if not self._closed:
            self._closed = True
            if self.results is None:
                self._thread.cancel(self)
            self._arrived.set()

    def take(self, events: list[Event], results: list[GenerationResult] | None) -> None:
        """More has happened; called in the event loop."""
        if self._closed:
            return
        if events:
            self._steps.append(events)
        if results is not None:
            self.results = results
        elif len(self._steps) > MAX_BACKLOG:
            self.close()
        self._arrived.set()


class EngineThread:
    """The engine, and who waits for what of it."""

    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
        """`loop`: where streams are read. The engine is this thread's own from now on."""
        self.engine = engine
        self._loop = loop
        self._todo: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._streams: dict[int, EngineStream] = {}
        self._stopping = False
        #: steps that failed in a row
        self._failed = 0
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    # -- from the event loop ----------------------------------------------------------------------

    async def add(self, request: Request) -> EngineStream:
        """Starts a request. Raises what `Engine.add` raises."""
        stream = EngineStream(self)

        def start() -> None:
            stream.number = self.engine.add(request)
            self._streams[stream.number] = stream

        try:
            await self.call(start)
        except asyncio.CancelledError:
            stream.close()  # it may have been added meanwhile
            raise
        return stream

    def cancel(self, stream: EngineStream) -> None:
        """Ends a request that nobody waits for any more."""

        def end() -> None:
            if self._streams.pop(stream.number, None) is not None:
                self.engine.cancel(stream.number)

        self._todo.put(end)

    async def call(self, work: Callable[[], Result]) -> Result:
        """Has the engine's thread do something between two steps; what comes of it."""
        return await asyncio.wrap_future(self.post(work))

    def post(self, work: Callable[[], Result]) -> Future[Result]:
        """As `call`, from any thread."""
        future: Future[Result] = Future()

        def do() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

        if not self.alive:
            future.set_exception(AiciError("the engine has ended"))
        else:
            self._todo.put(do)
        return future

    @property
    def alive(self) -> bool:
        """Whether the engine can do anything."""
        return self._thread.is_alive() and not self._stopping

    def close(self) -> None:
        """Ends all requests, then the thread."""
        self._stopping = True
        self._todo.put(lambda: None)
        self._thread.join()

    # -- in the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._work_off(wait=not self.engine.busy)
                self._publish(self._step())
        finally:
            self._stopping = True
            self.engine.close()
            self._publish(self.engine.drain())
            with contextlib.suppress(Empty):
                while True:  # nobody shall wait for ever
                    self._todo.get_nowait()()

    def _work_off(self, *, wait: bool) -> None:
        """Does what was asked for; waits for it if there is nothing else to do."""
        with contextlib.suppress(Empty):
            self._todo.get(wait)()
            while True:
                self._todo.get_nowait()()

    def _step(self) -> list[Event]:
        if not self.engine.busy or self._stopping:
            return self.engine.drain()
        try:
            events = self.engine.step()
        except Exception as error:
            # its sequences have ended with the error; what the model could not do now it may do next
            self._failed += 1
            _log.error("a step of the engine failed: %s", type(error).__name__, exc_info=error)
            if self._failed >= MAX_FAILURES:
                self._stopping = True
            return self.engine.drain()
        self._failed = 0
        return events

    def _publish(self, events: list[Event]) -> None:
        news: dict[int, list[Event]] = {}
        for event in events:
            news.setdefault(event.request, []).append(event)
        told: list[tuple[EngineStream, list[Event], list[GenerationResult] | None]] = []
        for number, happened in news.items():
            # fetched in any case: the engine keeps them until then
            results = self._results(number) if any(type(event) is Finished for event in happened) else None
            stream = self._streams.get(number)
            if stream is not None:
                told.append((stream, happened, results))
                if results is not None:
                    del self._streams[number]
        if told:
            with contextlib.suppress(RuntimeError):  # the loop has been closed
                self._loop.call_soon_threadsafe(_tell, told)

    def _results(self, number: int) -> list[GenerationResult] | None:
        """None while it goes on."""
        try:
            return self.engine.results(number)
        except ValueError:
            return None


def _tell(told: list[Any]) -> None:
    for stream, events, results in told:
        stream.take(events, results)
