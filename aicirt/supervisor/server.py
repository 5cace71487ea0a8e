"""The daemon: a private Unix socket, the workers, the module store."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from aicirt.contract.errors import RuntimeFailure, WorkerDiedError, counted
from aicirt.ipc.frames import FrameSocket, peer_credentials
from aicirt.modules.store import ModuleStore
from aicirt.settings import WorkerConfig, share_memory
from aicirt.supervisor.calls import Exchange
from aicirt.supervisor.fair_queue import builds, changes, compilations
from aicirt.supervisor.fork_server import ForkServer
from aicirt.supervisor.module_calls import Uploads
from aicirt.supervisor.pool import TenantPool, WorkerPool
from aicirt.supervisor.session import ClientSession, Services
from aicirt.supervisor.templates import Templates
from aicirt.supervisor.vocabularies import RegisteredVocabulary, Vocabularies
from aicirt.supervisor.warming import Warming
from aicirt.supervisor.workers import WorkerProcess, usage
from aicirt.system.logs import fields
from aicirt.system.resources import free_bytes
from aicirt.system.shortage import describe

_log = logging.getLogger("aicirt.supervisor")
#: sun_path of sockaddr_un has 108 bytes, with a zero at the end
_MAX_PATH_BYTES = 107
#: how long a process may be silent before a report says so
_HEALTH_SECONDS = 2.0


class Supervisor:
    """The state of one daemon, and its event loop."""

    pool: WorkerPool

    def __init__(
        self,
        socket_path: Path,
        store: ModuleStore,
        config: WorkerConfig,
        num_workers: int,
        fork_server: ForkServer,
        *,
        isolate_owners: bool = False,
    ) -> None:
        """`isolate_owners`: each worker serves a single owner; there are at most `num_workers`."""
        processes = 2 * num_workers if isolate_owners else num_workers + 1  # with the builders
        config = replace(config, worker=share_memory(config.worker, processes, free_bytes()))
        self.store = store
        self.builds = builds(config.daemon, time.monotonic)
        self.templates = Templates(store, config.worker, self._builder_for, self.builds.turn)
        self.warming = Warming(self.templates, config.worker, self._present_builder)
        self.compilations = compilations(config.daemon, time.monotonic)
        store.turns = self.compilations.turn
        store.start = fork_server.start
        self.vocabularies = Vocabularies(config.daemon, self.compilations.turn, self._vocabulary_gone)
        self.uploads = Uploads(config.daemon.owner_upload_bytes, self._stored_bytes)
        self.changes = changes(config.daemon, time.monotonic)
        #: refused calls by error code, and vocabularies that were evicted
        self.counters: Counter[str] = Counter()
        self.exchange = Exchange(config.daemon, self.counters)
        #: connected clients by number
        self.clients: dict[int, ClientSession] = {}
        #: the signal that stopped the daemon, if one did
        self.ended_by: signal.Signals | None = None
        self._path = socket_path
        self.config = replace(config, code=str(store.code))
        self._num_workers = num_workers
        self._fork_server = fork_server
        self._make_pool = TenantPool if isolate_owners else WorkerPool
        self._stopping = asyncio.Event()
        self._sessions: set[asyncio.Task[None]] = set()
        self._clients = 0

    async def run(self, ready_fd: int | None = None, owner_pid: int | None = None) -> None:
        """Serves until `stop`, SIGTERM or SIGINT, or until process `owner_pid` has ended.

        Writes a line to `ready_fd` when clients can connect. Raises RuntimeFailure if the socket is in use.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        listening = self._listen()  # raises before anything is started
        self.pool = self._make_pool(self._num_workers, self.config, self._fork_server.start)
        self.pool.on_death(self.templates.forget)
        self.pool.on_death(self.exchange.worker_died)
        self.pool.on_found = self.warming.learn
        self.pool.on_calls = self.exchange.ask
        owner_fd = None
        ready = loop.create_task(self.pool.ready())
        stopping = loop.create_task(self._stopping.wait())
        try:
            server = await asyncio.start_unix_server(self._accept, sock=listening)
            if owner_pid is not None:
                owner_fd = self._watch_owner(owner_pid)
            # starting takes time: `stop` may be called before it is over
            tasks: list[asyncio.Task[Any]] = [ready, stopping]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if ready.done():
                ready.result()
                _log.info("listening on %s with %s", self._path, counted(self._num_workers, "worker"))
                if ready_fd is not None:
                    os.write(ready_fd, b"ready\n")
                    os.close(ready_fd)
            await stopping
            server.close()
            for session in self._sessions:
                session.cancel()
        finally:
            for task in (ready, stopping):
                task.cancel()
            self.warming.stop()
            with contextlib.suppress(FileNotFoundError):
                self._path.unlink()
            await self.pool.stop_all()
            if owner_fd is not None:
                loop.remove_reader(owner_fd)
                os.close(owner_fd)

    def _builder_for(self, owner: str) -> WorkerProcess:
        return self.pool.builder_for(owner)

    def _present_builder(self, owner: str) -> WorkerProcess | None:
        return self.pool.present_builder(owner)

    async def _stored_bytes(self, owner: str) -> int:
        return await self.store.apart(partial(self.store.ownership.bytes_of, owner))

    def _vocabulary_gone(self, vocabulary: RegisteredVocabulary) -> None:
        """Forgets a vocabulary that was evicted, here and in all processes."""
        self.counters["vocabularies_given_up"] += 1
        self.templates.forget_vocabulary(vocabulary)
        for process in self.pool.all:
            process.notify("forget_vocabulary", {"id": vocabulary.id})

    async def _health(self) -> dict[str, Any]:
        """Returns the state of all processes, for `health`."""
        pool = self.pool

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
                "sandbox": worker.sandbox,
            }
            if owner is not None:
                who["owner"] = owner
            return {**stats, **who, **usage(worker.pid)}

        processes = await asyncio.gather(*(one(process) for process in (*pool.workers, *pool.builders)))
        workers = [process for process in processes if process["index"] >= 0]
        builders = [process for process in processes if process["index"] < 0]
        return {
            "pid": os.getpid(),
            "pace": self.config.pace,
            **usage(os.getpid()),
            # the builder that all owners share
            "builder": next((found for found in builders if "owner" not in found), None),
            "builders": builders,
            "workers": workers,
            "restarts": pool.restarts,
            "clients": [
                {
                    "pid": session.caller.pid,
                    "owner": session.caller.owner,
                    "sequences": sum(worker["clients"].get(number, 0) for worker in workers),
                }
                for number, session in self.clients.items()
            ],
            "modules": await self.store.apart(self.store.count),
            "counters": dict(self._all_counters()),
            "compilations": self.compilations.count_turns(),
            "builds": self.builds.count_turns(),
            "vocabularies": self.vocabularies.stats(),
            "templates": self.templates.stats(),
            "warm_failures": dict(self.warming.failures),
            "tools": self.exchange.tools(),
        }

    def _all_counters(self) -> Counter[str]:
        """Returns the counters of this process; workers have counters of their own."""
        queues = self.compilations.counters + self.builds.counters
        return self.counters + self.pool.counters + self.templates.counters + queues

    def stop(self) -> None:
        """Ends `run`."""
        self._stopping.set()

    def _on_signal(self, number: signal.Signals) -> None:
        self.ended_by = number
        self.stop()

    def _watch_owner(self, pid: int) -> int | None:
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            self.stop()
            return None
        asyncio.get_running_loop().add_reader(fd, self.stop)
        return fd

    def _listen(self) -> socket.socket:
        if not self._path.parent.is_dir():
            raise RuntimeFailure(
                f"the folder {self._path.parent} of the socket does not exist: create it, or choose another "
                "path"
            )
        if self._path.exists():
            if not self._path.is_socket():
                raise RuntimeFailure(f"{self._path} exists and is not a socket: choose another path")
            with socket.socket(socket.AF_UNIX) as probe:
                probe.setblocking(False)  # the listener may not be accepting
                if probe.connect_ex(str(self._path)) in (0, errno.EAGAIN):
                    raise RuntimeFailure(
                        f"another aicirt is listening on {self._path}: stop it, or choose another path"
                    )
            try:
                self._path.unlink()
            except OSError as error:
                raise RuntimeFailure(
                    f"{self._path} exists and cannot be removed ({error.strerror}): choose another path"
                ) from error
        early = self._path.with_name(f".{os.getpid()}")
        if max(len(os.fsencode(path)) for path in (self._path, early)) > _MAX_PATH_BYTES:
            raise RuntimeFailure(
                f"cannot listen on {self._path}: it has more than {_MAX_PATH_BYTES} bytes: choose a shorter "
                "--socket, or TMPDIR"
            )
        sock = socket.socket(socket.AF_UNIX)
        previous = os.umask(0o177)
        try:
            sock.bind(str(early))
            sock.listen()
            early.rename(self._path)  # who sees it can connect
        except OSError as error:
            sock.close()
            early.unlink(missing_ok=True)
            raise RuntimeFailure(f"cannot listen on {self._path}: {error}") from error
        finally:
            os.umask(previous)
        return sock

    async def _accept(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Sessions read from the socket itself, also file descriptors. This is not done earlier: with Python
        # 3.11.2, a transport that is paused while its connection is made begins to read all the same
        assert isinstance(writer.transport, asyncio.Transport)
        writer.transport.pause_reading()
        peer = writer.get_extra_info("socket")
        pid, uid = peer_credentials(peer)
        if uid not in (os.geteuid(), 0):
            _log.warning("refused a connection from user %d", uid, extra=fields(user=uid, pid=pid))
            writer.close()
            return
        try:
            frames = FrameSocket(peer.dup())
        except OSError as error:
            _log.warning("cannot serve a connection: %s", describe(error))
            writer.close()
            return
        self._clients += 1
        task = asyncio.current_task()
        if task is not None:
            self._sessions.add(task)
            task.add_done_callback(self._sessions.discard)
        number = self._clients
        services = Services(
            *(self.config, self.store, self.pool, self.templates, self.vocabularies, self.uploads),
            *(self.changes, self.counters, self.exchange, self._health, self.stop),
        )
        session = self.clients[number] = ClientSession(number, pid, services, frames, writer)
        try:
            await session.run()
        finally:
            del self.clients[number]
