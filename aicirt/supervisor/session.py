"""A client's connection: its calls, and the cleanup when it closes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Awaitable, Callable
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
from aicirt.contract.owners import DEFAULT_OWNER
from aicirt.ipc import names
from aicirt.ipc.frames import FrameSocket, frame
from aicirt.supervisor.module_calls import ModuleCalls, owner_of
from aicirt.supervisor.workers import usage
from aicirt.system.files import Descriptor
from aicirt.system.logs import fields
from aicirt.system.shortage import describe, is_shortage

if TYPE_CHECKING:
    from aicirt.supervisor.server import Supervisor
    from aicirt.supervisor.templates import Built
    from aicirt.supervisor.workers import WorkerProcess

_log = logging.getLogger("aicirt.supervisor")
#: the most in a call: aici.h defines a dozen
_MAX_CAPABILITIES = 64
#: how long a process may be silent before a report says so
_HEALTH_SECONDS = 2.0
#: how long the end of a session waits for a worker, which frees the client's sequences in any case
_DETACH_SECONDS = 5.0
#: slow calls that leave nothing behind when they are cancelled
_CANCELLABLE = ("upload", "prepare", "instantiate")


class Session:
    """Serves the calls of one client in order of arrival, each as its own task."""

    def __init__(
        self,
        number: int,
        pid: int,
        supervisor: Supervisor,
        reader: FrameSocket,
        writer: asyncio.StreamWriter,
    ) -> None:
        """`pid`: the process that has connected; 0 if it is in a PID namespace that is not visible here.

        `reader`: the same connection, since streams of asyncio receive no file descriptors.
        """
        self.number = number
        #: whose tags, snapshots and limits count if a call names no owner; clients may share an owner
        self.owner = DEFAULT_OWNER
        #: the process id that `hello` reports; 0 before
        self.pid = 0
        self._peer_pid = pid
        self._supervisor = supervisor
        self._reader = reader
        self._writer = writer
        self._pidfd = -1
        #: (worker index, generation) of every attached worker -> number of the vocabulary there
        self._attached: dict[tuple[int, int], int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        #: calls under way that can be cancelled, by their numbers
        self._under_way: dict[int, asyncio.Task[None]] = {}
        self._calls: dict[str, Callable[[dict[str, Any]], Awaitable[Any]]] = {
            "hello": self._hello,
            "cancel": self._cancel,
            "ping": self._ping,
            "vocabulary": self._vocabulary,
            "attach": self._attach,
            "prepare": self._prepare,
            "instantiate": self._instantiate,
            "health": self._health,
            "shutdown": self._shutdown,
            **ModuleCalls(supervisor, self).calls,
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
            _log.warning(problem, self.number, self.pid, what, extra=self._about(code=what))
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
            if self.pid == 0 and name != "hello":
                raise ProtocolError("the first call must be hello")
            reply = Reply(number, None, await call({**args, "files": files}))
        except asyncio.CancelledError:
            if self._writer.is_closing():
                raise
            reply = Reply(number, RuntimeFailure(f"call {name!r} was cancelled").to_wire(), None)
        except AiciError as error:
            if not isinstance(error, ControllerError):  # these are counted where they happened
                self._supervisor.counters[error.code] += 1
            # only the code: the message may be the controller's
            about = self._about(call=name if name in self._calls else "", code=error.code)
            _log.info("client %d got an error: %s", self.number, error.code, extra=about)
            reply = Reply(number, error.to_wire(), None)
        except (KeyError, TypeError, ValueError) as error:
            reply = Reply(
                number, ProtocolError(f"call {name!r} has invalid arguments: {error!r}").to_wire(), None
            )
        except Exception as error:
            if isinstance(error, OSError) and is_shortage(error):
                problem = f"call {name!r} cannot be served now: {describe(error)}"
            else:  # a bug in the supervisor must not go unnoticed
                _log.exception("call %r of client %d failed", name, self.number, extra=self._about(call=name))
                problem = f"internal error in call {name!r}: {error!r}"
            reply = Reply(number, RuntimeFailure(problem).to_wire(), None)
        with contextlib.suppress(ConnectionError):
            self._writer.write(frame(reply))
            await self._writer.drain()

    def _about(self, **more: Any) -> dict[str, Any]:
        """Returns the fields that describe the client in log calls."""
        return fields(client=self.number, pid=self.pid, owner=self.owner, **more)

    def _watch_peer(self) -> None:
        """Ends the connection when the process ends: children that it has forked may hold it open."""
        try:
            self._pidfd = os.pidfd_open(self._peer_pid)
        except ProcessLookupError:
            self._abort()
        except OSError as error:
            problem = "cannot watch the process of client %d, only its connection: %s"
            _log.warning(problem, self.number, error.strerror, extra=self._about())
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
        self._unwatch_peer()
        for task in self._tasks:
            task.cancel()
        self._supervisor.vocabularies.leave(self.number)
        for index, generation in self._attached:
            with contextlib.suppress(AiciError, TimeoutError):
                worker = self._supervisor.pool.find(index, generation)
                await worker.call("detach", {"client": self.number}, timeout=_DETACH_SECONDS)
        self._writer.close()
        self._reader.close()
        if self.pid:
            _log.info("client %d (pid %d) has disconnected", self.number, self.pid, extra=self._about())
            # unlinks what a killed client has left behind
            names.sweep_orphans()

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
        self.owner = owner_of(args)
        self.pid = int(args["pid"])
        _log.info("client %d (pid %d) has connected", self.number, self.pid, extra=self._about())
        return {
            "pid": os.getpid(),
            "protocol": PROTOCOL_VERSION,
            "workers": len(self._supervisor.pool.workers),
        }

    async def _vocabulary(self, args: dict[str, Any]) -> dict[str, Any] | None:
        """Registers a vocabulary; without `spec` looks it up and returns None if it is unknown."""
        vocabularies = self._supervisor.vocabularies
        spec = args.get("spec")
        entry = (
            vocabularies.find(args["fingerprint"], self.number)
            if spec is None
            else await vocabularies.register(args["fingerprint"], spec, self.owner, self.number)
        )
        return None if entry is None else {"id": entry.id, "vocab_size": entry.vocab_size}

    async def _attach(self, args: dict[str, Any]) -> None:
        """Connects the client's segment with a worker that serves all owners or the named one.

        The only file is the segment, which the worker checks.
        """
        pool, owner = self._supervisor.pool, owner_of(args, self.owner)
        worker = pool.find(args["worker"], args["generation"])
        if pool.owner_of(worker) not in (None, owner):
            raise RuntimeFailure(f"worker {worker.index} serves another owner than {owner!r}")
        vocabulary = self._supervisor.vocabularies.get(args["vocabulary"])
        await self._supervisor.templates.ensure_vocabulary(worker, vocabulary)
        self._attached[worker.index, worker.generation] = vocabulary.id
        if (user := self._supervisor.config.user) is not None:
            names.share_semaphore(args["bell"], user.gid)
        await worker.call(
            "attach",
            {
                "client": self.number,
                "link": args["link"],
                "bell": args["bell"],
                "layout": args["layout"],
                "vocabulary": vocabulary.id,
                "owner": self.owner,
            },
            fds=[file.fd for file in args["files"][:1]],
        )

    async def _prepare(self, args: dict[str, Any]) -> None:
        """Builds the template if it has not been built yet."""
        await self._build(args)

    async def _instantiate(self, args: dict[str, Any]) -> dict[str, Any]:
        """Chooses a worker and makes sure that it has the template."""
        pool, templates = self._supervisor.pool, self._supervisor.templates
        if gone := args.get("gone"):  # the worker has evicted this template
            templates.forget(pool.find(gone[0], gone[1]), gone[2])
        built = await self._build(args)
        worker = pool.place(built.owner)
        worker.bell.ring()  # wakes it for the Start that the client will send
        template, info = await templates.adopt(worker, built), built.info
        kind = {"has_pre": info.has_pre, "has_post": info.has_post, "repeatable": info.repeatable}
        return {**_address(worker), "template": template, **kind}

    async def _build(self, args: dict[str, Any]) -> Built:
        supervisor = self._supervisor
        store = supervisor.store
        module, arg = await store.apart(partial(store.find_call, args["module"], args["arg"]))
        vocabulary = supervisor.vocabularies.get(args["vocabulary"])
        capabilities = [[int(number), int(value)] for number, value in args["capabilities"]]
        return await supervisor.templates.build(
            module, arg, vocabulary, capabilities[:_MAX_CAPABILITIES], owner_of(args, self.owner)
        )

    async def _health(self, _: dict[str, Any]) -> dict[str, Any]:
        pool, clients = self._supervisor.pool, self._supervisor.clients

        async def one(worker: WorkerProcess) -> dict[str, Any]:
            owner = pool.owner_of(worker)  # asked first: it may have no owner after the ping
            try:
                stats = await worker.ask("ping", _HEALTH_SECONDS)
            except (WorkerDiedError, TimeoutError) as error:
                stats = {"error": str(error), "clients": {}}
            who: dict[str, Any] = {
                "index": worker.index,
                "generation": worker.generation,
                "pid": worker.pid,
                "load": worker.load.score,
                "walls": worker.walls,
            }
            if owner is not None:
                who["owner"] = owner
            return {**stats, **who, **usage(worker.pid)}

        processes = await asyncio.gather(*(one(process) for process in (*pool.workers, *pool.builders)))
        workers = [process for process in processes if process["index"] >= 0]
        builders = [process for process in processes if process["index"] < 0]
        return {
            "pid": os.getpid(),
            "pace": self._supervisor.config.pace,
            **usage(os.getpid()),
            # the builder that all owners share
            "builder": next((found for found in builders if "owner" not in found), None),
            "builders": builders,
            "workers": workers,
            "restarts": pool.restarts,
            "clients": [
                {
                    "pid": session.pid,
                    "owner": session.owner,
                    "sequences": sum(worker["clients"].get(number, 0) for worker in workers),
                }
                for number, session in clients.items()
            ],
            "modules": await self._supervisor.store.apart(self._supervisor.store.count),
            "counters": dict(self._supervisor.all_counters),
            "compilations": self._supervisor.compilations.stats(),
            "builds": self._supervisor.builds.stats(),
            "vocabularies": self._supervisor.vocabularies.stats(),
            "templates": self._supervisor.templates.stats(),
            "warm_failures": dict(self._supervisor.warming.failures),
        }

    async def _shutdown(self, _: dict[str, Any]) -> None:
        self._supervisor.stop()


def _address(worker: WorkerProcess) -> dict[str, Any]:
    """Returns what a client needs to attach to a worker."""
    return {
        "worker": worker.index,
        "generation": worker.generation,
        "pid": worker.pid,
        "bell": worker.bell.name,
    }
