"""A client's connection: its calls, and the cleanup when it closes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from aicirt.contract.errors import (
    AiciError,
    ControllerError,
    ProtocolError,
    RuntimeFailure,
    SpaceError,
    WorkerDiedError,
)
from aicirt.contract.messages import PROTOCOL_VERSION, Reply
from aicirt.ipc.frames import FrameSocket, frame
from aicirt.settings import MAX_CALL_NAME
from aicirt.supervisor.calls import Desk
from aicirt.supervisor.module_calls import Caller, ModuleCalls, owner_of
from aicirt.supervisor.pool import SLOW_SECONDS, WorkerPool
from aicirt.system.files import Descriptor
from aicirt.system.shortage import describe, is_shortage

if TYPE_CHECKING:
    from collections import Counter

    from aicirt.modules.store import ModuleStore
    from aicirt.settings import WorkerConfig
    from aicirt.supervisor.calls import Exchange
    from aicirt.supervisor.fair_queue import FairQueue
    from aicirt.supervisor.module_calls import Uploads
    from aicirt.supervisor.templates import Built, Templates
    from aicirt.supervisor.vocabularies import Vocabularies
    from aicirt.supervisor.workers import WorkerProcess

_log = logging.getLogger("aicirt.supervisor")
#: the most in a call: aici.h defines a dozen
_MAX_CAPABILITIES = 64
#: how long the end of a session waits for a worker, which frees the client's sequences in any case
_DETACH_SECONDS = 5.0
#: slow calls that leave nothing behind when they are cancelled
_CANCELLABLE = ("upload", "prepare", "instantiate", "take")
#: calls of a connection that only answers the calls of controllers
_OF_ANSWERERS = ("hello", "ping", "cancel", "offer", "withdraw", "sources", "take", "answer")


@dataclass(frozen=True, slots=True)
class Services:
    """The parts of the daemon that its connections use."""

    config: WorkerConfig
    store: ModuleStore
    pool: WorkerPool
    templates: Templates
    vocabularies: Vocabularies
    uploads: Uploads
    changes: FairQueue
    #: refused calls by error code
    counters: Counter[str]
    exchange: Exchange
    health: Callable[[], Awaitable[dict[str, Any]]]
    stop: Callable[[], None]


class ClientSession:
    """Serves the calls of one client in order of arrival, each as its own task."""

    def __init__(
        self,
        number: int,
        pid: int,
        services: Services,
        reader: FrameSocket,
        writer: asyncio.StreamWriter,
    ) -> None:
        """`pid`: the process that has connected; 0 if it is in a PID namespace that is not visible here.

        `reader`: the same connection, since streams of asyncio receive no file descriptors.
        """
        self.caller = caller = Caller(number)
        self._peer_pid = pid
        self._services = services
        self._reader = reader
        self._writer = writer
        self._pidfd = -1
        #: whether the connection has given up all other rights
        self._only_answers = False
        #: (worker index, generation) of every attached worker -> number of the vocabulary there
        self._attached: dict[tuple[int, int], int] = {}
        self._desk = Desk(services.exchange)
        self._tasks: set[asyncio.Task[None]] = set()
        #: calls under way that can be cancelled, by their numbers
        self._under_way: dict[int, asyncio.Task[None]] = {}
        modules = ModuleCalls(
            *(caller, services.store, services.uploads, services.changes),
            *(services.config.daemon.owner_tags, services.templates.forget_module),
        )
        self._calls: dict[str, Callable[[dict[str, Any]], Awaitable[Any]]] = {
            "hello": self._hello,
            "cancel": self._cancel,
            "ping": self._ping,
            "vocabulary": self._vocabulary,
            "attach": self._attach,
            "prepare": self._prepare,
            "instantiate": self._instantiate,
            "offer": self._offer,
            "withdraw": self._withdraw,
            "sources": self._set_sources,
            "take": self._take_events,
            "answer": self._answer,
            "send": self._send_message,
            "health": self._health,
            "shutdown": self._shutdown,
            **modules.calls,
        }

    async def run(self) -> None:
        """Serves calls until the client closes the connection or its process ends."""
        try:
            self._watch_peer()
            while (message := await self._read()) is not None:
                number, name, args, count = message
                files = [Descriptor(fd) for fd in self._reader.take_fds()]
                call = self._serve(number, name, args, files, complete=len(files) == count)
                task = asyncio.get_running_loop().create_task(call)
                self._tasks.add(task)
                if name in _CANCELLABLE:
                    self._under_way[number] = task
                task.add_done_callback(partial(self._ended, number))
        except (AiciError, ValueError) as error:
            # only the code: the error's message quotes the client
            what = error.code if isinstance(error, AiciError) else type(error).__name__
            problem = "client %d (pid %d) broke the protocol: %s"
            caller = self.caller
            _log.warning(problem, caller.number, caller.pid, what, extra=caller.about(code=what))
        finally:
            await self._close()

    async def _read(self) -> list[Any] | None:
        """Returns the next message, or None at the end of the connection. Raises ProtocolError."""
        await asyncio.sleep(0)  # lets others run between two messages that have arrived together
        while (message := self._reader.poll(once=True)) is None and not self._reader.closed:
            loop, fd = asyncio.get_running_loop(), self._reader.socket.fileno()
            readable = asyncio.Event()
            loop.add_reader(fd, readable.set)
            try:
                await readable.wait()
            finally:
                loop.remove_reader(fd)
        return message

    def _ended(self, number: int, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._under_way.get(number) is task:
            del self._under_way[number]

    async def _serve(
        self, number: int, name: str, args: dict[str, Any], files: list[Descriptor], *, complete: bool
    ) -> None:
        try:
            if not complete:
                problem = "a call arrived without its file descriptors: the daemon cannot open more files"
                raise SpaceError(f"{problem}; raise the limit (ulimit -n)")
            call = self._calls.get(name)
            if call is None:
                raise ProtocolError(f"unknown call {name!r}")
            if self.caller.pid == 0 and name != "hello":
                raise ProtocolError("the first call must be hello")
            if self._only_answers and name not in _OF_ANSWERERS:
                raise ProtocolError(f"this connection only answers calls: it has no right to call {name!r}")
            reply = Reply(number, None, await call({**args, "files": files}))
        except asyncio.CancelledError:
            if self._writer.is_closing():
                raise
            reply = Reply(number, RuntimeFailure(f"call {name!r} was cancelled").to_wire(), None)
        except AiciError as error:
            if not isinstance(error, ControllerError):  # these are counted where they happened
                self._services.counters[error.code] += 1
            # only the code: the message may be the controller's
            about = self.caller.about(call=name if name in self._calls else "", code=error.code)
            _log.info("client %d got an error: %s", self.caller.number, error.code, extra=about)
            reply = Reply(number, error.to_wire(), None)
        except (KeyError, TypeError, ValueError) as error:
            reply = Reply(
                number, ProtocolError(f"call {name!r} has invalid arguments: {error!r}").to_wire(), None
            )
        except Exception as error:
            if isinstance(error, OSError) and is_shortage(error):
                problem = f"call {name!r} cannot be served now: {describe(error)}"
            else:  # a bug in the supervisor must not go unnoticed
                about = self.caller.about(call=name)
                _log.exception("call %r of client %d failed", name, self.caller.number, extra=about)
                problem = f"internal error in call {name!r}: {error!r}"
            reply = Reply(number, RuntimeFailure(problem).to_wire(), None)
        with contextlib.suppress(ConnectionError):
            self._writer.write(frame(reply))
            await self._writer.drain()

    def _watch_peer(self) -> None:
        """Ends the connection when the process ends: children that it has forked may hold it open."""
        try:
            self._pidfd = os.pidfd_open(self._peer_pid)
        except ProcessLookupError:
            self._abort()
        except OSError as error:
            problem = "cannot watch the process of client %d, only its connection: %s"
            _log.warning(problem, self.caller.number, error.strerror, extra=self.caller.about())
        else:
            asyncio.get_running_loop().add_reader(self._pidfd, self._peer_died)

    def _unwatch_peer(self) -> None:
        if self._pidfd >= 0:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def _peer_died(self) -> None:
        self._unwatch_peer()
        self._abort()

    def _abort(self) -> None:
        self._writer.transport.abort()
        with contextlib.suppress(OSError):  # the client has closed it
            self._reader.socket.shutdown(socket.SHUT_RDWR)

    async def _close(self) -> None:
        caller = self.caller
        self._unwatch_peer()
        for task in self._tasks:
            task.cancel()
        self._desk.close()
        self._services.vocabularies.forget_client(caller.number)
        for index, generation in self._attached:
            with contextlib.suppress(AiciError, TimeoutError):
                worker = self._services.pool.find(index, generation)
                await worker.call("detach", {"client": caller.number}, timeout=_DETACH_SECONDS)
        self._writer.close()
        self._reader.close()
        if caller.pid:
            what = "client %d (pid %d) has disconnected"
            _log.info(what, caller.number, caller.pid, extra=caller.about())

    # -- calls -------------------------------------------------------------------------------

    async def _cancel(self, args: dict[str, Any]) -> None:
        """Cancels another call of the client. That call answers with an error, unless it has answered."""
        if (task := self._under_way.get(args["call"])) is not None:
            task.cancel()

    async def _ping(self, _: dict[str, Any]) -> None:
        """Answers at once: tells a client whose call takes long that the supervisor is there."""

    async def _hello(self, args: dict[str, Any]) -> dict[str, Any]:
        if args["protocol"] != PROTOCOL_VERSION:
            raise ProtocolError(
                f"the client uses protocol version {args['protocol']}, and aicirt uses {PROTOCOL_VERSION}: "
                "install the same version of aici on both sides"
            )
        caller = self.caller
        caller.owner, caller.pid = owner_of(args), int(args["pid"])
        self._only_answers = self._only_answers or args.get("role") == "answers"
        _log.info("client %d (pid %d) has connected", caller.number, caller.pid, extra=caller.about())
        limits = self._services.config.daemon
        return {
            "pid": os.getpid(),
            "protocol": PROTOCOL_VERSION,
            "workers": len(self._services.pool.workers),
            **{name: getattr(limits, name) for name in ("answer_bytes", "owner_tags", "owner_upload_bytes")},
        }

    async def _vocabulary(self, args: dict[str, Any]) -> dict[str, Any] | None:
        """Registers a vocabulary; without `spec` looks it up and returns None if it is unknown."""
        vocabularies = self._services.vocabularies
        spec = args.get("spec")
        entry = (
            vocabularies.find(args["fingerprint"], self.caller.number)
            if spec is None
            else await vocabularies.register(args["fingerprint"], spec, self.caller.owner, self.caller.number)
        )
        return None if entry is None else {"id": entry.id, "vocab_size": entry.vocab_size}

    async def _attach(self, args: dict[str, Any]) -> None:
        """Connects the client's segment with a worker that serves all owners or the named one.

        The files are the segment, which the worker checks, and a socket: on it the client gets the doorbell,
        and the worker wakes it while all its sequences wait.
        """
        pool, owner = self._services.pool, owner_of(args, self.caller.owner)
        worker = pool.find(args["worker"], args["generation"])
        if pool.owner_of(worker) not in (None, owner):
            raise RuntimeFailure(f"worker {worker.index} serves another owner than {owner!r}")
        vocabulary = self._services.vocabularies.get(args["vocabulary"])
        await self._services.templates.ensure_vocabulary(worker, vocabulary)
        self._attached[worker.index, worker.generation] = vocabulary.id
        segment, waker = args["files"]
        _send_bell(worker, waker)
        await worker.call(
            "attach",
            {
                "client": self.caller.number,
                "link": args["link"],
                "layout": args["layout"],
                "vocabulary": vocabulary.id,
                "owner": self.caller.owner,
            },
            fds=[segment.fd, waker.fd],
        )

    async def _prepare(self, args: dict[str, Any]) -> None:
        """Builds the template if it has not been built yet."""
        await self._build(args)

    async def _instantiate(self, args: dict[str, Any]) -> dict[str, Any]:
        """Chooses a worker and makes sure that it has the template."""
        pool, templates = self._services.pool, self._services.templates
        if gone := args.get("gone"):  # the worker has evicted this template
            templates.forget(pool.find(gone[0], gone[1]), gone[2])
        info = (built := await self._build(args)).info
        kind = {"has_pre": info.has_pre, "has_post": info.has_post, "repeatable": info.repeatable}
        while True:
            worker = pool.choose_worker(built.owner)
            if calls := args.get("calls"):
                self._services.exchange.assign_worker(calls, worker)
            worker.bell.ring()  # wakes it for the Start that the client will send
            with contextlib.suppress(TimeoutError):  # another worker may answer
                async with asyncio.timeout(SLOW_SECONDS):
                    template = await templates.adopt(worker, built)
                return {**_address(worker), "template": template, **kind}  # it has a pid by now

    async def _offer(self, args: dict[str, Any]) -> str:
        """Offers to answer calls; returns the token that requests name."""
        return self._services.exchange.offer(
            self._desk,
            args["calls"],
            owner_of(args, self.caller.owner),
            for_all=bool(args.get("for_all")),
            public=bool(args.get("public", True)),
            watched=bool(args.get("watched")),
            name=str(args.get("run") or ""),
            results=bool(args.get("results")),
            trace=str(args.get("trace") or ""),
        )

    async def _withdraw(self, args: dict[str, Any]) -> None:
        self._services.exchange.withdraw(self._desk, args["token"])

    async def _set_sources(self, args: dict[str, Any]) -> None:
        """Keeps for `health` where the connection's calls come from."""
        self._desk.set_sources(args["sources"])

    async def _take_events(self, _: dict[str, Any]) -> list[dict[str, Any]]:
        """Returns the next events of calls, as soon as there are any."""
        return await self._desk.take()

    async def _answer(self, args: dict[str, Any]) -> bool:
        """Answers a call; returns whether somebody waits for it."""
        result, code = args["result"], args.get("code", "")
        if not (isinstance(result, bytes) and isinstance(code, str) and isinstance(args["call"], str)):
            raise TypeError("an answer has a call, a result in bytes, and perhaps a code")
        return self._services.exchange.answer(self._desk, args["call"], result, code[:MAX_CALL_NAME])

    async def _send_message(self, args: dict[str, Any]) -> None:
        """Sends a message to a run of the owner."""
        run, value = args["run"], args["value"]
        if not (isinstance(run, str) and isinstance(value, bytes)):
            raise TypeError("a message has the name of a run, and a value in bytes")
        self._services.exchange.deliver(owner_of(args, self.caller.owner), run, value)

    async def _build(self, args: dict[str, Any]) -> Built:
        services = self._services
        store = services.store
        module, arg = await store.apart(partial(store.find_call, args["module"], args["arg"]))
        vocabulary = services.vocabularies.get(args["vocabulary"])
        capabilities = [[int(number), int(value)] for number, value in args["capabilities"]]
        return await services.templates.build(
            module, arg, vocabulary, capabilities[:_MAX_CAPABILITIES], owner_of(args, self.caller.owner)
        )

    async def _health(self, _: dict[str, Any]) -> dict[str, Any]:
        return await self._services.health()

    async def _shutdown(self, _: dict[str, Any]) -> None:
        self._services.stop()


def _address(worker: WorkerProcess) -> dict[str, Any]:
    """Returns what a client needs to attach to a worker."""
    return {"worker": worker.index, "generation": worker.generation, "pid": worker.pid}


def _send_bell(worker: WorkerProcess, file: Descriptor) -> None:
    """Sends a worker's doorbell on a client's socket. Raises WorkerDiedError, or ProtocolError."""
    if (bell := worker.bell.file) is None:
        raise WorkerDiedError(f"{worker.name} has ended")
    try:
        with socket.socket(fileno=os.dup(file.fd)) as sock:
            sock.setblocking(False)
            FrameSocket(sock).send(Reply(0, None, None), [bell.fd])
    except OSError as error:
        raise ProtocolError(f"the doorbell cannot be sent: {describe(error)}") from error
