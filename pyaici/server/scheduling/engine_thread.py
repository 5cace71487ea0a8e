"""Runs an engine in its own thread: requests arrive from an event loop, events go back to it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from weakref import WeakSet

from aicirt.contract.errors import RuntimeFailure, TemplateGoneError, WorkerDiedError
from aicirt.system.logs import fields
from aicirt.system.resources import take_short_turns
from aicirt.system.shortage import describe
from aicirt.system.threads import call_at_end
from pyaici.engines.engine import Finished
from pyaici.server.http.errors import ApiError, busy, from_aici
from pyaici.server.scheduling.streams import Backlog, Backlogs, EngineStream, StepTimed
from pyaici.server.scheduling.threads import in_own_thread

if TYPE_CHECKING:
    from pyaici.client.control import Placement, WorkerAddress
    from pyaici.engines.engine import Engine, Event, GenerationResult, Request


class EngineTask(Protocol):
    """A task for the engine's thread: it runs once, or it is dropped."""

    def do(self) -> object:
        """Runs the task. Must not raise."""

    def end(self, error: ApiError) -> None:
        """Drops the task; every waiting caller gets this error."""


class EngineCall:
    """A function call for the engine's thread."""

    def __init__(
        self,
        work: Callable[[], Any],
        on_refused: Callable[[ApiError], None] | None = None,
        on_error: Callable[[BaseException], None] | None = None,
    ) -> None:
        """Wraps `work`. `on_refused` is called with the error if `work` will not be called.

        `on_error` is called with the exception that `work` raises. Use it if nothing awaits the future.
        """
        self._work = work
        self._on_refused = on_refused
        self._on_error = on_error
        self.future: Future[Any] = Future()

    def do(self) -> None:
        """Calls the function, unless the future has been cancelled."""
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            self.future.set_result(self._work())
        except BaseException as error:
            self.future.set_exception(error)
            if self._on_error is not None:
                self._on_error(error)

    def end(self, error: ApiError) -> None:
        """Drops the call; see `EngineTask.end`."""
        if self._on_refused is not None:
            self._on_refused(error)
        elif self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)


class Piecewise:
    """A task in pieces: a generator that runs piece by piece. Its return value is the result."""

    def __init__(self, work: Callable[[], Generator[None, None, Any]], wanted: Callable[[], bool]) -> None:
        self._work = work
        self._wanted = wanted
        self._pieces: Generator[None, None, Any] | None = None
        self.future: Future[Any] = Future()

    def do(self) -> bool:
        """Does the next piece; returns whether there are more. Does not raise."""
        if self._pieces is None and not self.future.set_running_or_notify_cancel():
            return False
        try:
            if self._pieces is None:
                self._pieces = self._work()
            if self._wanted():
                next(self._pieces)
                return True
            self._pieces.close()  # gives back what the generator holds of the engine
            self.future.set_exception(ApiError(499, "the client has disconnected", code="disconnected"))
        except StopIteration as done:
            self.future.set_result(done.value)
        except BaseException as error:
            self.future.set_exception(error)
        return False

    def end(self, error: ApiError) -> None:
        """Drops the work that is left; see `EngineTask.end`."""
        if self._pieces is None and not self.future.set_running_or_notify_cancel():
            return
        try:
            if self._pieces is not None:
                self._pieces.close()
        finally:
            self.future.set_exception(error)


_log = logging.getLogger("aicirt.server")
Result = TypeVar("Result")
#: attempts at starting a request: before it begins, its template may be evicted, or its worker may die
PLACINGS = 4
#: an engine that fails so many times in a row will not recover
MAX_FAILURES = 3
#: scheduler time slice of the thread: a step waits for workers and for the event loop's thread many times
_TURN_SECONDS = 300e-6
#: seconds for tasks between two steps, if the last step was shorter
_TASK_SECONDS = 0.05
#: how often to look which requests wait
_LOOK_SECONDS = 0.5
_FAILED = "the engine has failed: restart the server"


class EngineThread:
    """Owns the engine and its thread.

    Every waiting caller gets a result or an error, however the engine ends.
    """

    def __init__(
        self, engine: Engine, loop: asyncio.AbstractEventLoop, on_failure: Callable[[], None] | None = None
    ) -> None:
        """Starts the thread. From now on only that thread may use `engine`. `loop`: where streams are read.

        `on_failure` is called, in the thread, when the engine ends without `close` having been called.
        """
        self.engine = engine
        self._loop = loop
        self._on_failure = on_failure
        self._todo: SimpleQueue[EngineTask] = SimpleQueue()
        #: work in pieces, taken in turn: one piece between two steps
        self._pieces: deque[Piecewise] = deque()
        self._streams: dict[int, EngineStream] = {}
        self._backlogs = Backlogs()
        #: all streams that somebody may still read
        self._readable: WeakSet[EngineStream] = WeakSet()
        #: workers whose end is noticed, by pid: the number of requests of which the engine noticed it first
        self._watched: dict[int, int] = {}
        self._stopping = False
        #: prevents tasks from being added to `_todo` after the thread has read it for the last time
        self._entry = threading.Lock()
        self._ended = False
        #: message of the error for requests after the end
        self._why = "the server is shutting down: try again after its restart"
        #: number of failed steps in a row
        self._failures = 0
        #: duration of the last step
        self._step_seconds = 0.0
        #: requests all of whose sequences wait, as of a moment ago, and when to look again
        self._parked: set[int] = set()
        self._look_at = 0.0
        #: whether the events that are published next are those of a step
        self._stepped = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    # -- from the event loop ----------------------------------------------------------------------

    async def add(self, request: Request, backlog: Backlog | None = None) -> EngineStream:
        """Starts a request. Raises what `Engine.add` raises, and ApiError if the engine has ended.

        `backlog`: shared by all answers of one request; None if this is the only one.
        """
        gone: Placement | None = None
        left = PLACINGS
        while True:
            placement = None
            try:
                # not in the engine's thread: other requests must not wait for a controller that reads its
                # argument, or for a worker that has just started
                placement = await in_own_thread(partial(self.engine.place, request, gone))
                return await self._add(request, placement, backlog or Backlog())
            except (TemplateGoneError, WorkerDiedError) as error:
                left -= 1
                if left == 0:
                    raise
                gone = placement if isinstance(error, TemplateGoneError) else None

    async def _add(self, request: Request, placement: Placement | None, backlog: Backlog) -> EngineStream:
        stream = EngineStream(self.cancel_stream, self._backlogs, backlog)
        stream.timed = request.count_allowed
        self._readable.add(stream)
        if placement is not None:
            stream.worker = placement.address.pid
            self._watch(placement.address)

        def start() -> None:
            stream.number = self.engine.add(request, placement)
            self._streams[stream.number] = stream

        stream.starting = self.post(start)
        try:
            await asyncio.wrap_future(stream.starting)
        except BaseException:
            stream.close()  # the engine may have added the request meanwhile
            task = asyncio.current_task()
            if stream.lost is not None and task is not None and not task.cancelling():
                raise stream.lost from None
            raise
        return stream

    def _watch(self, worker: WorkerAddress) -> None:
        """Makes the worker's streams fail when it ends: the engine notices that only between two passes."""
        if worker.pid in self._watched:
            return
        name = f"worker {worker.worker} (pid {worker.pid})"
        try:
            call_at_end(worker.pid, partial(self._worker_ended, worker.pid, name))
        except ProcessLookupError:
            raise WorkerDiedError(f"{name} has ended") from None
        except OSError as error:
            raise RuntimeFailure(f"{name} cannot be watched: {describe(error)}") from None
        self._watched[worker.pid] = 0

    def _worker_ended(self, pid: int, name: str) -> None:
        error, lost = WorkerDiedError(f"{name} has ended; its sequences are lost"), self._watched.pop(pid)
        for stream in [stream for stream in self._readable if stream.open and stream.worker == pid]:
            if stream.starting is not None and stream.starting.cancel():
                stream.lost = error  # the request can be placed again
            else:
                lost += 1
                stream.fail(from_aici(error))
                self.cancel_stream(stream)
        level = logging.WARNING if lost else logging.INFO  # aicirt ends workers that nobody needs
        about = fields(pid=pid, lost=lost)
        _log.log(level, "%s has ended; requests lost: %d", name, lost, extra=about)

    def _take(
        self, stream: EngineStream, events: list[Event], results: list[GenerationResult] | None
    ) -> None:
        died = any(isinstance(result.error, WorkerDiedError) for result in results or ())
        if died and stream.open and stream.worker in self._watched:
            self._watched[stream.worker] += 1
        stream.add_events(events, results)

    def cancel_stream(self, stream: EngineStream) -> None:
        """Cancels the request of a stream that is no longer read."""

        def end() -> None:
            if self._streams.pop(stream.number, None) is not None:
                self.engine.cancel(stream.number)

        with contextlib.suppress(ApiError):  # raised if the engine has ended, and all requests with it
            self._put(EngineCall(end, on_error=_log_failure))

    def cancel_all(self) -> None:
        """Cancels all requests; each stream reports its end."""

        def end() -> None:
            for number in list(self._streams):
                self.engine.cancel(number)
            self._end_pieces()

        with contextlib.suppress(ApiError):
            self._put(EngineCall(end, on_error=_log_failure))

    def fail_all(self) -> None:
        """Ends all streams with an error, without waiting for the engine; call it in the event loop."""
        for stream in list(self._readable):
            stream.fail(self.gone())

    async def call(self, work: Callable[[], Result]) -> Result:
        """Returns `work()`, called in the engine's thread between two steps."""
        return await asyncio.wrap_future(self.post(work))

    def post(self, work: Callable[[], Result]) -> Future[Result]:
        """Does what `call` does, from any thread. The future fails with ApiError if the engine has ended."""
        call = EngineCall(work)
        return self._posted(call, call.future)

    def post_in_pieces(
        self, work: Callable[[], Generator[None, None, Result]], wanted: Callable[[], bool]
    ) -> Future[Result]:
        """Does what `post` does, for long work: steps and other tasks run between its pieces.

        Stops between two pieces once `wanted` returns False.
        """
        piecewise = Piecewise(work, wanted)
        return self._posted(
            EngineCall(partial(self._pieces.append, piecewise), piecewise.end), piecewise.future
        )

    def _posted(self, task: EngineTask, future: Future[Result]) -> Future[Result]:
        try:
            self._put(task)
        except ApiError as error:
            future.set_exception(error)
        return future

    def _put(self, task: EngineTask) -> None:
        """Queues a task. Raises ApiError if the engine has ended or is ending."""
        with self._entry:
            if self._ended or self._stopping:
                raise self.gone()
            self._todo.put(task)
        self.engine.wake()  # it sleeps while all controllers wait

    def gone(self) -> ApiError:
        """Returns the error for requests that come after the engine has ended."""
        return busy(self._why, 5)

    @property
    def alive(self) -> bool:
        """Whether the engine can take work."""
        return self._thread.is_alive() and not self._stopping

    @property
    def failed(self) -> bool:
        """Whether the engine has ended because of errors, not by `close`."""
        return self._why == _FAILED

    def close(self) -> None:
        """Ends all requests, then the thread."""
        self._stopping = True
        self._todo.put(EngineCall(lambda: None))
        self.engine.wake()
        self._thread.join()

    # -- in the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        take_short_turns(_TURN_SECONDS)
        try:
            while not self._stopping:
                self._run_tasks(wait=not self.engine.busy and not self._pieces)
                self._do_piece()
                self._publish(self._step())
                self._look_at_parked()
        except BaseException as error:
            self._fail(error)
        finally:
            self._stopping = True
            self._end()

    def _fail(self, error: BaseException) -> None:
        self._why = _FAILED
        self._stopping = True
        _log.critical("%s (%s)", _FAILED, type(error).__name__, exc_info=error)

    def _end(self) -> None:
        """Closes the engine and ends everything that still waits: pieces, streams and tasks."""
        with self._entry:
            self._ended = True
        self._end_pieces()
        try:
            self.engine.close()
            self._publish(self.engine.drain())
        except Exception as error:
            _log.error("the engine could not be closed: %s", type(error).__name__, exc_info=error)
        self._notify([partial(stream.fail, self.gone()) for stream in self._streams.values()])
        self._streams.clear()
        with contextlib.suppress(Empty):
            while True:
                self._todo.get_nowait().end(self.gone())
        if self.failed and self._on_failure is not None:
            self._on_failure()

    def _end_pieces(self) -> None:
        while self._pieces:
            self._pieces.popleft().end(self.gone())

    def _run_tasks(self, *, wait: bool) -> None:
        """Runs queued tasks; with `wait`, waits for the first one.

        While requests run, the tasks take as long as a step at most, and one more: each new request waits for
        its worker.
        """
        with contextlib.suppress(Empty):
            over = time.monotonic() + max(_TASK_SECONDS, self._step_seconds)
            self._todo.get(wait).do()
            while not self._stopping and (time.monotonic() < over or not self.engine.busy):
                self._todo.get_nowait().do()

    def _do_piece(self) -> None:
        if self._pieces and not self._stopping:
            piecewise = self._pieces.popleft()
            if piecewise.do():
                self._pieces.append(piecewise)

    def _step(self) -> list[Event]:
        if not self.engine.busy or self._stopping:
            return self.engine.drain()
        begun = time.monotonic()
        try:
            events = self.engine.step()
            self._step_seconds = time.monotonic() - begun
        except Exception as error:
            # The sequences have ended with the error. The next step may succeed.
            self._failures += 1
            _log.error("a step of the engine failed: %s", type(error).__name__, exc_info=error)
            if self._failures >= MAX_FAILURES:
                self._fail(error)
            return self.engine.drain()
        self._failures = 0
        self._stepped = True
        return events

    def _publish(self, events: list[Event]) -> None:
        stepped, self._stepped = self._stepped, False
        by_request: dict[int, list[Event]] = {}
        for event in events:
            by_request.setdefault(event.request, []).append(event)
        callbacks: list[Callable[[], None]] = []
        for number, batch in by_request.items():
            try:
                # fetch results even if no stream reads them: the engine keeps them until they are fetched
                ended = any(type(event) is Finished for event in batch)
                results = self._results(number) if ended else None
            except Exception as error:
                _log.error(
                    "the results of a request could not be read: %s", type(error).__name__, exc_info=error
                )
                if (stream := self._streams.pop(number, None)) is not None:
                    callbacks.append(partial(stream.fail, _defect()))
                continue
            stream = self._streams.get(number)
            if stream is not None:
                if stream.timed and stepped:
                    control = self.engine.stats.last_control_seconds
                    batch.append(StepTimed(number, batch[-1].seq, self._step_seconds, control))
                callbacks.append(partial(self._take, stream, batch, results))
                if results is not None:
                    del self._streams[number]
        self._notify(callbacks)

    def _look_at_parked(self) -> None:
        """Tells the streams of requests that wait, or no longer wait, now and then."""
        if (now := time.monotonic()) < self._look_at:
            return
        self._look_at = now + _LOOK_SECONDS
        parked = self.engine.parked_requests()
        changed = [(number, number in parked) for number in parked ^ self._parked]
        self._parked = parked
        self._notify(
            [
                partial(self._streams[number].tell_parked, now)
                for number, now in changed
                if number in self._streams
            ]
        )

    def _results(self, number: int) -> list[GenerationResult] | None:
        """Returns the results of a request; None while it goes on."""
        try:
            return self.engine.results(number)
        except ValueError:
            return None

    def _notify(self, callbacks: list[Callable[[], None]]) -> None:
        if callbacks:
            with contextlib.suppress(RuntimeError):  # the event loop has been closed
                self._loop.call_soon_threadsafe(_call_each, callbacks)


def _call_each(callbacks: list[Callable[[], None]]) -> None:
    """Calls each function in the event loop; the failure of one does not affect the others."""
    for callback in callbacks:
        try:
            callback()
        except Exception as error:
            _log_failure(error)


def _log_failure(error: BaseException) -> None:
    _log.error("delivering events of a request failed: %s", type(error).__name__, exc_info=error)


def _defect() -> ApiError:
    return ApiError(500, "internal error: see the server's log", kind="api_error")
