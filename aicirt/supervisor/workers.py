"""A worker process from the supervisor's side: starts it, calls it, watches it, and knows its load."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from aicirt.contract.errors import (
    AiciError,
    ProtocolError,
    RuntimeFailure,
    SpaceError,
    WorkerDiedError,
    counted,
)
from aicirt.contract.messages import Call
from aicirt.ipc.frames import FrameSocket
from aicirt.ipc.ring import Doorbell
from aicirt.settings import SEND_SECONDS, START_SECONDS, STOP_SECONDS, WorkerConfig
from aicirt.supervisor.replies import check_error, check_value
from aicirt.system.files import Descriptor
from aicirt.system.logs import fields
from aicirt.system.processes import Child, Start
from aicirt.system.shortage import describe
from aicirt.system.silence import LOOK_SECONDS, Silence
from aicirt.system.terminal import printable

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
#: numbers of stdout, of the control socket and of the doorbell in the process
_STDOUT_FD, _CONTROL_FD, _BELL_FD = 1, 3, 4
#: bytes of output that the log takes from a process in so many seconds, and seconds between two reads
_LOG_BYTES, _LOG_SECONDS, _LOG_PAUSE_SECONDS = 1 << 16, 60.0, 0.1
#: bytes of an answer: the longest of a worker is that to "found", with 256 KiB. A builder also describes a
#: snapshot; a run of pages takes 20 bytes at most
_MAX_ANSWER, _PAGES_PER_BYTE = 1 << 20, 1 << 8
#: calls that no client waits for
_OF_THE_SUPERVISOR = ("ping", "found", "warm", "calls", "answer", "stop")


class _Output:
    """Passes the output of a process on to the log, within a limit.

    Otherwise a worker that has been broken out of could fill the disk, or change what the log contains.
    """

    def __init__(self, name: str, pipe: Descriptor) -> None:
        self._name, self._pipe = name, pipe
        self._loop = asyncio.get_running_loop()
        self._until, self._room, self._omitted = 0.0, 0, 0
        self._pause: asyncio.TimerHandle | None = None
        self._resume()

    def _resume(self) -> None:
        self._loop.add_reader(self._pipe.fd, self._receive)

    def _receive(self) -> None:
        """Reads once, and then not for a moment: endless output must not keep the supervisor busy."""
        self._loop.remove_reader(self._pipe.fd)
        if self._pass_on():
            self._pause = self._loop.call_later(_LOG_PAUSE_SECONDS, self._resume)

    def _pass_on(self) -> bool:
        """Reads once. Returns False at the end of the output."""
        try:
            data = os.read(self._pipe.fd, _LOG_BYTES)
        except BlockingIOError:  # the process is alive
            return True
        if self._loop.time() >= self._until:
            self._warn()
            self._until, self._room = self._loop.time() + _LOG_SECONDS, _LOG_BYTES
        kept = data[: self._room]
        self._room -= len(kept)
        self._omitted += len(data) - len(kept)
        end = "\n" if len(kept) < len(data) and kept else ""
        sys.stderr.write(printable(kept.decode(errors="replace")) + end)
        return bool(data)

    def _warn(self) -> None:
        if self._omitted:
            _log.warning("%s wrote more: %s left out", self._name, counted(self._omitted, "byte"))
            self._omitted = 0

    def close(self) -> None:
        """Passes on what is left, and says how much was left out."""
        self._loop.remove_reader(self._pipe.fd)
        if self._pause is not None:
            self._pause.cancel()
        self._pass_on()
        self._warn()


def _connections() -> tuple[socket.socket, Descriptor, Descriptor, Descriptor]:
    """Returns our end of the control socket, the process's, that of its output, and our end of that."""
    ours, theirs = socket.socketpair()
    # without waiting: a worker loses output that is not read in time, and its steps go on
    output, outputs_end = map(Descriptor, os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC))
    return ours, Descriptor(theirs.detach()), outputs_end, output


class WorkerProcess:
    """A worker process. `generation` distinguishes it from others that had or will have its index."""

    def __init__(
        self,
        index: int,
        generation: int,
        config: WorkerConfig,
        start: Start,
        on_death: Callable[[WorkerProcess], None],
        on_found: Callable[[WorkerProcess, Any], None],
    ):
        """Begins to start the process. Raises RuntimeFailure if there is no room for another one.

        Calls may be made at once. A process that cannot be started counts as dead. `on_found` receives the
        answers to the call "found".
        """
        self.index = index
        #: the name in messages
        self.name = f"worker {index}" if index >= 0 else "the builder"
        self.generation = generation
        #: 0 until the process has started
        self.pid = 0
        #: the reason if it could not be started
        self.problem = ""
        self.load = Load()
        #: the layers around the process, from its first answer: later ones may be those of a guest
        self.sandbox: dict[str, Any] = {}
        #: owners whose sequences it has had; of more than two, the first two
        self.owners: set[str] = set()
        #: whether it was killed because it did not answer
        self.silent = False
        self._on_death = on_death
        self._on_found = on_found
        self._silence, self._pace = config.worker.silence_seconds, config.pace
        self._numbers = iter(range(1, 1 << 62))
        #: names of the calls that have not been answered, and when they were sent, by number
        self._unanswered: dict[int, tuple[str, float]] = {}
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        #: number of calls under way on behalf of clients
        self.asked = 0
        self._loop = asyncio.get_running_loop()
        #: loop time
        self.started = self._loop.time()
        self.alive = True
        self._child: Child | None = None
        try:
            self.bell = Doorbell.create()
            ours, *theirs, output = _connections()
        except (OSError, RuntimeFailure) as error:
            raise RuntimeFailure(f"{self.name} cannot be started: {describe(error)}") from error
        # limits how long a worker that reads nothing blocks the supervisor
        look = struct.pack("ll", 0, int(LOOK_SECONDS * 1e6))
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, look)
        described = config.limits.memory_bytes // _PAGES_PER_BYTE if index < 0 else 0
        self._socket = FrameSocket(ours, _MAX_ANSWER + described)
        self._loop.add_reader(ours.fileno(), self._receive)
        self._output = _Output(self.name, output)
        self._starting = self._loop.create_task(self._start(config, start, *theirs))

    async def _start(
        self, config: WorkerConfig, start: Start, control: Descriptor, output: Descriptor
    ) -> None:
        user = config.user
        try:
            arguments = [
                *(["--background"] if self.index < 0 else []),
                *("--control-fd", str(_CONTROL_FD), "--bell-fd", str(_BELL_FD), "--parent", str(os.getpid())),
                *(["--user", str(user.uid), str(user.gid)] if user is not None else []),
                *("--config", config.to_json()),
            ]
            assert self.bell.file is not None
            files = [output.fd, output.fd, control.fd, self.bell.file.fd]
            self._child = await start("aicirt.worker", arguments, files, _STDOUT_FD)
        except Exception as error:
            expected = isinstance(error, (OSError, RuntimeFailure))
            self.problem = f"{self.name} cannot be started: {describe(error) if expected else repr(error)}"
            self._died()
            return
        self.pid = self._child.pid
        self.started = self._loop.time()
        self._loop.add_reader(self._child.pidfd.fd, self._died)

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
            raise WorkerDiedError(self.problem or f"{self.name} (pid {self.pid}) has ended")
        number = next(self._numbers)
        future: asyncio.Future[Any] = self._loop.create_future()
        self._waiting[number] = future
        asked = int(name not in _OF_THE_SUPERVISOR)
        self.asked += asked
        try:
            self._send(Call(number, name, args, len(fds or ())), fds)
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

    def notify(self, name: str, args: dict[str, Any]) -> None:
        """Sends a call without waiting for the answer; does nothing if the process has ended."""
        if self.alive:
            try:
                self._send(Call(next(self._numbers), name, args))
                self.bell.ring()
            except OSError:  # it is gone, or has not read for so long that its socket is full
                self.kill()

    def _send(self, call: Call, fds: list[int] | None = None) -> None:
        """Sends a call. Raises OSError if the process is gone, or reads nothing for `SEND_SECONDS`."""
        self._unanswered[call.number] = call.name, self._loop.time()
        silence = Silence(self.pid)
        self._socket.send(call, fds, lambda: silence.seconds() > SEND_SECONDS * self._pace)

    def owes(self, seconds: float) -> bool:
        """Returns whether it has left a call unanswered for so long; the call "calls" waits for news."""
        before = self._loop.time() - seconds
        return any(sent < before for name, sent in self._unanswered.values() if name != "calls")

    async def watch(self) -> None:
        """Pings the process until it ends; kills it if it is silent for too long."""
        await asyncio.wait([self._starting])
        patience = max(self._silence, START_SECONDS * self._pace)
        while self.alive:
            try:
                stats = await self.ask("ping", patience)
                self.load.report(stats)
                patience = self._silence
                self.sandbox = self.sandbox or stats["sandbox"]
                if stats["found"]:
                    self._on_found(self, await self.ask("found", patience))
            except TimeoutError:
                self.silent = True
                self._complain("is silent")
                self.kill()
            except WorkerDiedError:
                return
            await asyncio.sleep(1)

    async def listen(self, on_calls: Callable[[WorkerProcess, Any], None]) -> None:
        """Passes on the news of calls that the worker reports, until it ends."""
        with contextlib.suppress(WorkerDiedError):
            while self.alive:
                on_calls(self, await self.call("calls", {}))

    async def ask(self, name: str, patience: float) -> Any:
        """Returns the answer to a call without arguments. Raises TimeoutError after so long a silence."""
        answer = self._loop.create_task(self.call(name, {}))
        silence = Silence(self.pid)
        try:
            while silence.seconds() < patience:
                done, _ = await asyncio.wait([answer], timeout=LOOK_SECONDS)
                if done:
                    return answer.result()
            raise TimeoutError(f"{self.name} (pid {self.pid}) was silent for {patience:g} s")
        finally:
            answer.cancel()

    def kill(self) -> None:
        """Sends SIGKILL; `on_death` follows. Does nothing before the process has started."""
        if self._child is not None:
            self._child.kill()

    async def stop(self) -> None:
        """Asks the process to end, then kills it if it has not."""
        self._on_death = _ignore
        if self._starting.done():
            with contextlib.suppress(WorkerDiedError, TimeoutError):
                await self.call("stop", {}, timeout=STOP_SECONDS)
        self.end()

    def end(self) -> None:
        """Kills the process and waits for its end; does not call `on_death`."""
        self._on_death = _ignore
        self._starting.cancel()
        self.kill()
        self._died()

    def _receive(self) -> None:
        """Handles one message; others of the daemon have their turns before the next one."""
        if not self.alive:
            return
        try:
            if (message := self._socket.poll()) is not None:
                self._handle(*message)
                self._loop.call_soon(self._receive)
        except (ProtocolError, TypeError, ValueError, LookupError, OSError) as error:
            self._complain(f"sent an invalid message ({type(error).__name__})")
            self._socket.closed = True  # reads no more of it
            self.kill()
        if self._socket.closed:
            self._loop.remove_reader(self._socket.socket.fileno())

    def _handle(self, number: int, error: Any, value: Any, count: int) -> None:
        """Passes an answer on. Raises ProtocolError, or another error, if it answers no call, or wrongly."""
        call, _ = self._unanswered.pop(number)
        files = [Descriptor(fd) for fd in self._socket.take_fds()]
        problem: AiciError | None = None
        if error is not None:
            problem = check_error(call, error)
        else:
            check_value(call, value, count)
            if len(files) < count:
                lost = "an answer arrived without its file descriptors: the daemon cannot open more files"
                problem = SpaceError(f"{lost}; raise the limit (ulimit -n)")
        future = self._waiting.get(number)
        if future is not None and not future.done():
            if problem is None:
                future.set_result((value, files))
            else:
                future.set_exception(problem)

    def _complain(self, what: str) -> None:
        about = fields(worker=self.index, pid=self.pid)
        _log.error("%s (pid %d) %s: killing it", self.name, self.pid, what, extra=about)

    def _died(self) -> None:
        if not self.alive:
            return
        self.alive = False
        self._loop.remove_reader(self._socket.socket.fileno())
        if self._child is not None:
            self._loop.remove_reader(self._child.pidfd.fd)
            self._child.wait_for_exit()
        self._socket.close()
        self._output.close()
        self.bell.close()
        status = self._child.status if self._child else None
        error = WorkerDiedError(self.problem or f"{self.name} (pid {self.pid}) ended with status {status}")
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)
        self._on_death(self)


def _ignore(_: WorkerProcess) -> None:
    """Does nothing: the process was asked to end."""


#: a worker with a smaller busy share counts as idle: differences below it are noise
_IDLE_SHARE = 0.1
#: the share of a worker's time that a new sequence is expected to use, and for how many seconds it counts as
#: new: afterwards the share that the worker measures includes it
_NEW_SHARE, _NEW_SECONDS = 0.02, 2.0
#: added for every sequence: of equally busy workers, the one with fewer sequences has the lower score
_SEQUENCE_SHARE = 0.002


class Load:
    """The load of one worker: its last report, and the sequences placed there since."""

    __slots__ = ("_asked", "_missing", "_new", "_placed", "busy", "sequences")

    def __init__(self) -> None:
        #: share of its time, 0 to 1, that it spends on sequences, averaged over the last second or so
        self.busy = 0.0
        #: live sequences at the last report
        self.sequences = 0
        #: sequences placed here, and those of them that the worker has been asked to start
        self._placed = self._asked = 0
        self._missing = 0
        #: when the latest sequences were placed
        self._new: deque[float] = deque()

    def count_placement(self) -> None:
        """Counts a sequence that will be started in the worker."""
        self._placed += 1
        self._new.append(time.monotonic())

    def report(self, stats: Mapping[str, Any]) -> None:
        """Reads the worker's answer to a ping."""
        asked = stats["asked"]
        self.sequences, self.busy = stats["sequences"], min(stats["busy"], 1.0)
        missing = self._placed - asked
        if missing < 0 or (missing == self._missing and asked == self._asked):
            self._placed, missing = asked, 0  # the clients that were to start them have ended
        self._asked, self._missing = asked, missing

    @property
    def coming(self) -> int:
        """Sequences that have been placed but not started yet."""
        return max(0, self._placed - self._asked)

    @property
    def score(self) -> float:
        """The load for comparing workers: 0 is idle, 1 is fully busy; every sequence adds a little."""
        since = time.monotonic() - _NEW_SECONDS
        while self._new and self._new[0] < since:
            self._new.popleft()
        sequences = self.sequences + self.coming
        return max(0.0, self.busy - _IDLE_SHARE) + _NEW_SHARE * len(self._new) + _SEQUENCE_SHARE * sequences
