"""A worker process from the supervisor's side: starts it, calls it, watches it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from aicirt.contract.errors import ProtocolError, RuntimeFailure, SpaceError, WorkerDiedError, error_from_wire
from aicirt.contract.messages import Call
from aicirt.ipc import names
from aicirt.ipc.doorbell import Doorbell
from aicirt.ipc.frames import FrameSocket
from aicirt.settings import SEND_SECONDS, START_SECONDS, STOP_SECONDS, WorkerConfig
from aicirt.supervisor.load import Load
from aicirt.system.environment import child_environment
from aicirt.system.files import Descriptor
from aicirt.system.logs import fields
from aicirt.system.shortage import describe
from aicirt.system.silence import Silence

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE_KIB = os.sysconf("SC_PAGE_SIZE") // 1024


def usage(pid: int) -> dict[str, float]:
    """Returns `cpu_s` (CPU seconds) and `rss_kib` (memory with shared pages); {} if the process is gone."""
    folder = Path(f"/proc/{pid}")
    try:
        # the program's name, in parentheses, may contain anything
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        pages = int((folder / "statm").read_text().split()[1])
    except OSError:
        return {}
    return {"cpu_s": (int(fields[11]) + int(fields[12])) / _TICK, "rss_kib": pages * _PAGE_KIB}


_log = logging.getLogger("aicirt.supervisor")
#: index of the process that runs `aici_init`, which may take a second; it has no sequences. Where each worker
#: has its own builder, their indices count down from here
BUILDER = -1
#: how often to check a process that has not answered a ping yet
_LOOK_SECONDS = 0.2
#: calls that no client waits for
_OF_THE_SUPERVISOR = ("ping", "found", "warm", "stop")


@contextlib.contextmanager
def _signals_blocked() -> Iterator[None]:
    """Blocks SIGTERM and SIGINT in processes started in this block: a terminal sends Ctrl-C to all."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class WorkerProcess:
    """A worker process. `generation` distinguishes it from others that had or will have its index."""

    def __init__(
        self,
        index: int,
        generation: int,
        config: WorkerConfig,
        on_death: Callable[[WorkerProcess], None],
        on_found: Callable[[WorkerProcess, Any], None],
    ):
        """Starts the process. Raises RuntimeFailure if there is no room for another one.

        `on_found` receives the unchecked answers to the call "found".
        """
        self.index = index
        #: the name in messages
        self.name = f"worker {index}" if index >= 0 else "the builder"
        self.generation = generation
        self.load = Load()
        #: whether it was killed because it did not answer
        self.silent = False
        self._on_death = on_death
        self._on_found = on_found
        self._silence = config.worker.silence_seconds
        self._numbers = iter(range(1, 1 << 62))
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        #: number of calls under way on behalf of clients
        self.asked = 0
        self._loop = asyncio.get_running_loop()
        with contextlib.ExitStack() as undo:
            try:
                self._start(config, undo)
            except (OSError, RuntimeFailure) as error:
                raise RuntimeFailure(f"{self.name} cannot be started: {describe(error)}") from error
            undo.pop_all()
        self._loop.add_reader(self._socket.socket.fileno(), self._receive)
        self._loop.add_reader(self._pidfd, self._died)
        #: loop time
        self.started = self._loop.time()
        self.alive = True

    def _start(self, config: WorkerConfig, undo: contextlib.ExitStack) -> None:
        self.bell = Doorbell.create()
        undo.callback(self.bell.close)
        user = config.user
        if user is not None:
            names.share_semaphore(self.bell.name, user.gid)
        ours, theirs = socket.socketpair()
        undo.callback(ours.close)
        with theirs, _signals_blocked():
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "aicirt.worker"),
                    *("--control-fd", str(theirs.fileno()), "--bell", self.bell.name),
                    *("--config", config.to_json(), "--parent", str(os.getpid())),
                    *(["--background"] if self.index < 0 else []),
                    *(["--user", str(user.uid), str(user.gid)] if user is not None else []),
                ],
                # the worker's user may be unable to reach the folder by its path
                cwd=config.code or None,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=child_environment(),
            )
        undo.callback(self._process.wait)
        undo.callback(self._process.kill)
        self.pid = self._process.pid
        # limits how long a worker that reads nothing blocks the supervisor
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_SECONDS, 0))
        self._socket = FrameSocket(ours)
        self._pidfd = os.pidfd_open(self.pid)

    async def call(
        self, name: str, args: dict[str, Any], fds: list[int] | None = None, timeout: float | None = None
    ) -> Any:
        """Calls the worker and returns its answer. Raises the worker's error, or WorkerDiedError."""
        value, _ = await self.exchange(name, args, fds, timeout)
        return value

    async def exchange(
        self, name: str, args: dict[str, Any], fds: list[int] | None = None, timeout: float | None = None
    ) -> tuple[Any, list[Descriptor]]:
        """Does the same as `call`, and returns the answer with the files that come with it."""
        if not self.alive:
            raise WorkerDiedError(f"{self.name} (pid {self.pid}) has ended")
        number = next(self._numbers)
        future: asyncio.Future[Any] = self._loop.create_future()
        self._waiting[number] = future
        asked = int(name not in _OF_THE_SUPERVISOR)
        self.asked += asked
        try:
            self._socket.send(Call(number, name, args, len(fds or ())), fds)
            self.bell.ring()
            answer: tuple[Any, list[Descriptor]] = await asyncio.wait_for(future, timeout)
            return answer
        except TimeoutError:  # a subclass of OSError, but raised by wait_for
            raise
        except OSError as error:
            self.kill()  # the worker is gone, or has not read for so long that its socket is full
            raise WorkerDiedError(f"{self.name} (pid {self.pid}) does not answer: {error}") from error
        finally:
            self._waiting.pop(number, None)
            self.asked -= asked

    def tell(self, name: str, args: dict[str, Any]) -> None:
        """Sends a call without waiting for the answer; does nothing if the process has ended."""
        if self.alive:
            with contextlib.suppress(OSError):  # the next call notices it
                self._socket.send(Call(next(self._numbers), name, args))
                self.bell.ring()

    async def watch(self) -> None:
        """Pings the process until it ends; kills it if it is silent for too long or sends invalid answers."""
        patience = max(self._silence, START_SECONDS)
        while self.alive:
            try:
                stats = await self._ping(patience)
                self.load.report(stats)
                patience = self._silence
                if stats.get("found"):
                    self._on_found(self, await self.call("found", {}, timeout=patience))
            except TimeoutError:
                self.silent = True
                self._complain("is silent")
                self.kill()
            except ProtocolError as error:
                self._complain(f"sent an invalid answer ({type(error).__name__})")
                self.kill()
            except WorkerDiedError:
                return
            await asyncio.sleep(1)

    async def _ping(self, patience: float) -> Any:
        """Pings once; returns the answer. Raises TimeoutError after `patience` seconds of silence."""
        ping = self._loop.create_task(self.call("ping", {}))
        silence = Silence(self.pid)
        try:
            while silence.seconds() < patience:
                done, _ = await asyncio.wait([ping], timeout=_LOOK_SECONDS)
                if done:
                    return ping.result()
            raise TimeoutError
        finally:
            ping.cancel()

    def kill(self) -> None:
        """Sends SIGKILL; `on_death` follows."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    async def stop(self) -> None:
        """Asks the process to end, then kills it if it has not."""
        self._on_death = _ignore
        with contextlib.suppress(WorkerDiedError, TimeoutError):
            await self.call("stop", {}, timeout=STOP_SECONDS)
        self.end()

    def end(self) -> None:
        """Kills the process and waits for its end; does not call `on_death`."""
        self._on_death = _ignore
        if self.alive:
            self.kill()
        self._process.wait()
        self._died()

    def _receive(self) -> None:
        try:
            while (message := self._socket.poll()) is not None:
                number, error, value, count = message
                files = [Descriptor(fd) for fd in self._socket.take_fds()]
                if len(files) < count and error is None:
                    problem = (
                        "an answer arrived without its file descriptors: the daemon cannot open more files"
                    )
                    error = SpaceError(f"{problem}; raise the limit (ulimit -n)").to_wire()
                future = self._waiting.get(number)
                if future is not None and not future.done():
                    if error is None:
                        future.set_result((value, files))
                    else:
                        future.set_exception(error_from_wire(error))
        except (ProtocolError, TypeError, ValueError, OSError) as error:
            self._complain(f"sent an invalid message ({type(error).__name__})")
            self.kill()
        if self._socket.closed:
            self._loop.remove_reader(self._socket.socket.fileno())

    def _complain(self, what: str) -> None:
        about = fields(worker=self.index, pid=self.pid)
        _log.error("%s (pid %d) %s: killing it", self.name, self.pid, what, extra=about)

    def _died(self) -> None:
        if not self.alive:
            return
        self.alive = False
        self._loop.remove_reader(self._pidfd)
        self._loop.remove_reader(self._socket.socket.fileno())
        status = self._process.wait()
        os.close(self._pidfd)
        self._socket.close()
        self.bell.close()
        error = WorkerDiedError(f"{self.name} (pid {self.pid}) ended with status {status}")
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)
        self._on_death(self)


def _ignore(_: WorkerProcess) -> None:
    """Does nothing: the process was asked to end."""
