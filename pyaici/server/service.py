"""Shared state of all APIs: the model, the controllers, and running requests to them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from aicirt.contract.errors import (
    AiciError,
    ArgumentError,
    ControllerError,
    ModuleError,
    UnknownControllerError,
)
from aicirt.system.logs import fields
from pyaici.engines.engine import Request, Sampling
from pyaici.server.calls import Calls
from pyaici.server.http.errors import bad_request, from_aici
from pyaici.server.http.tracing import Generation, part_of, tracing_generation
from pyaici.server.scheduling.engine_thread import EngineThread
from pyaici.server.scheduling.queues import FairTurns, Parking, WaitingLimits
from pyaici.server.scheduling.streams import Backlog
from pyaici.server.scheduling.threads import Reading

if TYPE_CHECKING:
    from pyaici.server.controller_store import ControllerStore
    from pyaici.server.http.middleware import Metrics
    from pyaici.server.http.users import User
    from pyaici.server.models import ServedModel
    from pyaici.server.scheduling.queues import Turn
    from pyaici.server.scheduling.streams import EngineStream
    from pyaici.server.settings import ServerSettings
    from pyaici.tools.process import ToolsProcess
    from pyaici.tools.settings import OfferedTools


_log = logging.getLogger("aicirt.server")
#: options of sampling that traces have
_TRACED = ("temperature", "top_p", "top_k", "seed")


@dataclass(frozen=True, slots=True)
class ControllerCall:
    """A controller and its argument.

    `param` and `arg_param` are the request's fields for them, for errors; `hint` ends the message of
    a refused argument.
    """

    controller: str
    arg: str = ""
    param: str = "controller"
    arg_param: str = "controller_arg"
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """A sequence to generate, and its user."""

    user: User
    prompt: list[int]
    controller: ControllerCall | None = None
    sampling: Sampling = field(default_factory=Sampling)
    #: None: as many as the server allows and the context has room for
    max_tokens: int | None = None
    logprobs: bool = False
    top_logprobs: int = 0
    #: report how many tokens each mask allows
    count_allowed: bool = False
    #: memory for what controllers print, if the engine's results are shown to the client
    max_log_bytes: int = 0
    #: descriptions of calls that the client answers; None: the controller may make no calls, unless the
    #: operator allows some
    calls: Sequence[dict[str, Any]] | None = None
    #: under which the user's other runs send messages to the controller; it may make calls then
    name: str = ""
    #: the controller calls tools for the model: it counts the tokens of `max_tokens` itself, since it appends
    #: messages between them, and events of calls have results
    calls_tools: bool = False
    #: unread bytes of the request: copies of a job share the object
    backlog: Backlog = field(default_factory=Backlog)


class Service:
    """Runs jobs, as many at a time as the settings allow; others wait for their turn."""

    def __init__(
        self,
        settings: ServerSettings,
        model: ServedModel,
        controllers: ControllerStore,
        metrics: Metrics,
        on_failure: Callable[[], None] | None = None,
        tools: ToolsProcess | None = None,
    ) -> None:
        """Starts the engine's thread; call it in the event loop that serves.

        `on_failure`: see `EngineThread`. `tools`: the operator's.
        """
        self.settings = settings
        self.model = model
        self.controllers = controllers
        self.calls = Calls(controllers, metrics)
        #: the operator's tools, which all controllers may call
        self.tools = tools
        self.metrics = metrics
        self.engine = EngineThread(model.engine, asyncio.get_running_loop(), on_failure)
        self.reading = Reading(settings)
        self.waiting_room = WaitingLimits.for_streams(settings)
        parking = Parking(settings.max_parked, settings.max_parked_each)
        self._turns = FairTurns(settings.max_streams, self.waiting_room, parking=parking)
        #: of requests that have no stream yet
        self._starting: set[asyncio.Timeout] = set()

    @property
    def mcp_servers(self) -> Mapping[str, OfferedTools]:
        """The MCP servers of the operator, by name."""
        return {} if self.tools is None else self.tools.servers

    @contextlib.asynccontextmanager
    async def run(self, job: Job, *, in_turn: bool = False) -> AsyncIterator[EngineStream]:
        """Runs a job and yields its events; leaving the block cancels what is left. Raises ApiError.

        `in_turn`: the job belongs to a request that holds a turn already.
        """
        call = job.controller
        options = {"max_tokens": job.max_tokens, **{name: getattr(job.sampling, name) for name in _TRACED}}
        controller = None if call is None else call.controller
        with tracing_generation(self.model.name, controller, options) as generation:
            async with self._run(job, generation, in_turn) as stream:
                yield stream

    @contextlib.asynccontextmanager
    async def _run(self, job: Job, generation: Generation, in_turn: bool) -> AsyncIterator[EngineStream]:
        with part_of(generation.span, "prepare"):
            async with self._start():
                request = await self._prepare(job)
        wanted = job.calls if job.controller is not None else None
        if wanted is None and (self.tools is not None or job.name):
            wanted = ()
        async with (
            contextlib.nullcontext() if in_turn else self.turn(job.user) as turn,
            self.calls.of(wanted, job.user, job.name, results=job.calls_tools) as calls,
        ):
            request = replace(request, calls=calls.token)
            try:
                async with self._start():
                    try:
                        stream = await self.engine.add(request, job.backlog)
                    except (
                        ModuleError,
                        UnknownControllerError,
                    ):  # removed at aicirt since it accepted the argument
                        self.controllers.forget(job.user)
                        request = replace(await self._prepare(job), calls=calls.token)
                        stream = await self.engine.add(request, job.backlog)
            except AiciError as error:
                raise from_aici(error, job.controller.param if job.controller else None) from None
            except ValueError as error:
                raise bad_request(str(error)) from None
            calls.show_in(stream, generation.span)
            stream.on_gap = self.metrics.gap.observe
            stream.on_parked = None if turn is None else turn.step_aside
            controlled = job.controller is not None
            self.metrics.started(controlled)
            try:
                yield stream
            finally:
                stream.close()
                _log_failures(stream)
                self.metrics.ended(controlled, stream.results, stream.error)
                generation.results = stream.results or ()

    @contextlib.asynccontextmanager
    async def _start(self) -> AsyncIterator[None]:
        """Ends the block with an error when `fail_requests` is called."""
        limit = asyncio.timeout(None)
        try:
            async with limit:
                self._starting.add(limit)
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            raise self.engine.gone() from None
        finally:
            self._starting.discard(limit)

    async def _prepare(self, job: Job) -> Request:
        """Returns the engine's request; checks that the controller exists and accepts its argument."""
        module = None
        if (call := job.controller) is not None:
            try:
                module = await self.controllers.find(call.controller, job.user)
            except AiciError as error:
                raise from_aici(error, call.param) from None
            try:
                with self.metrics.preparing():
                    await self.controllers.prepare(module, call.arg, job.user)
            except (ModuleError, UnknownControllerError) as error:  # removed, or its interpreter is
                raise from_aici(error, call.param) from None
            except AiciError as error:
                refused = from_aici(error, call.arg_param)
                refused.message += call.hint if isinstance(error, ArgumentError) else ""
                raise refused from None
        return Request(
            job.prompt,
            controller=module,
            arg="" if job.controller is None else job.controller.arg,
            sampling=job.sampling,
            max_tokens=self._room(job),
            logprobs=job.logprobs,
            top_logprobs=job.top_logprobs,
            count_allowed=job.count_allowed,
            max_log_bytes=job.max_log_bytes,
            owner=job.user.owner,
        )

    def _room(self, job: Job) -> int:
        room = self.model.max_context - max(1, len(job.prompt))
        if job.max_tokens is None:
            return max(1, min(self.settings.max_tokens, room))
        if job.max_tokens > self.settings.max_tokens:
            raise bad_request(
                f"max_tokens is {job.max_tokens}; this server allows {self.settings.max_tokens}", "max_tokens"
            )
        return max(1, min(self.settings.max_tokens, room)) if job.calls_tools else job.max_tokens

    @contextlib.asynccontextmanager
    async def turn(self, user: User) -> AsyncIterator[Turn]:
        """Holds a place for a running request inside the block; callers take turns. Raises ApiError."""
        if not self.engine.alive:
            raise self.engine.gone()
        start = time.perf_counter()
        with contextlib.ExitStack() as waiting:
            waiting.enter_context(part_of(None, "queue"))
            async with self._turns.turn(user.caller) as turn:
                waiting.close()
                self.metrics.queue.observe(time.perf_counter() - start)
                yield turn

    def end_requests(self) -> None:
        """Cancels running requests and refuses waiting ones, before the server ends."""
        self._turns.close(self.engine.gone)
        self.engine.cancel_all()

    def fail_requests(self) -> None:
        """Does the same at once: clients get an error although the engine is in the middle of a step."""
        self.end_requests()
        self.engine.fail_all()
        for limit in self._starting:
            limit.reschedule(asyncio.get_running_loop().time())

    def close(self) -> None:
        """Ends the engine's thread and all remaining requests."""
        self.reading.close()
        self.engine.close()


def _log_failures(stream: EngineStream) -> None:
    """Logs errors that are no fault of the request's controller. The client gets the message."""
    errors = [result.error for result in stream.results or ()]
    for code in sorted({e.code for e in errors if e is not None and not isinstance(e, ControllerError)}):
        _log.warning("a request ended with the error %s", code, extra=fields(code=code))
