"""The fork server from the supervisor's side: starts it, requests processes, replaces it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence

from aicirt.contract.errors import RuntimeFailure
from aicirt.settings import START_SECONDS
from aicirt.system.files import Descriptor
from aicirt.system.processes import Child, adopt_orphans, child_environment
from aicirt.system.silence import LOOK_SECONDS, Silence

_log = logging.getLogger("aicirt.supervisor")
_MODULE = "aicirt.fork_server"
_MAX_ANSWER = 1 << 10
#: signals that end a process although it has no defect
_NO_CRASH = (signal.SIGKILL, signal.SIGTERM, signal.SIGXCPU)


class ForkServer:
    """Starts workers, builders and compilers by forking a process that has imported what they need.

    If that process has ended, another one is started when it is needed. Forks of one process share the layout
    of its memory. A crash may be an attempt to find it out: after each, a successor with another layout is
    started, which forks as soon as it is ready.
    """

    def __init__(self) -> None:
        """Starts the process, which is ready some tenths of a second later."""
        adopt_orphans(True)
        self._turn = asyncio.Lock()
        self._current: _Process | None = None
        self._successor: _Process | None = None
        with contextlib.suppress(OSError):  # `start` tries again, and reports it
            self._current = _Process()

    @property
    def pid(self) -> int:
        """The process that forks; 0 if there is none."""
        return self._current.pid if self._current else 0

    async def start(self, program: str, arguments: Sequence[str], files: Sequence[int], first: int) -> Child:
        """Starts a program (`aicirt.system.processes.Start`). If cancelled, ends it once it has started."""
        copies = [Descriptor(os.dup(fd)) for fd in files]  # the caller may be cancelled, and close its own
        task = asyncio.get_running_loop().create_task(self._start(program, arguments, copies, first))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_end_unwanted)
            raise

    async def _start(
        self, program: str, arguments: Sequence[str], files: Sequence[Descriptor], first: int
    ) -> Child:
        request = json.dumps([program, arguments, first]).encode()
        async with self._turn:
            for _ in range(2):
                process = self._running()
                try:
                    return await process.fork(request, [file.fd for file in files], self._ended)
                except _EndedError:
                    _log.warning("the fork server (pid %d) has ended", process.pid)
                    process.close()
                    self._current = None
        raise RuntimeFailure("the process that forks it has ended twice")

    def close(self) -> None:
        """Ends the process; those that it has forked go on."""
        adopt_orphans(False)
        for process in (self._current, self._successor):
            if process is not None:
                process.close()
        self._current = self._successor = None

    def _running(self) -> _Process:
        """Returns the process that forks, the successor if that is ready. Raises OSError."""
        successor = self._successor
        if successor is not None and (self._current is None or successor.has_answered):
            if self._current is not None:
                self._current.close()
            self._current, self._successor = successor, None
        if self._current is None:
            self._current = _Process()
        return self._current

    def _ended(self, status: int) -> None:
        # also if a compiler has run out of memory: the successor costs as much as one interpreter
        if status < 0 and -status not in _NO_CRASH and self._current and self._successor is None:
            with contextlib.suppress(OSError):
                self._successor = _Process()


def _end_unwanted(task: asyncio.Task[Child]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().kill()
        task.result().wait_for_exit()


class _EndedError(Exception):
    """The process that forks has ended."""


class _Process:
    """A process that runs `aicirt.fork_server`, and its socket."""

    def __init__(self) -> None:
        """Starts the process. Raises OSError."""
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setblocking(False)
        self._ready = False
        numbers = [str(theirs.fileno()), str(os.getpid())]
        with contextlib.ExitStack() as undo, theirs, _signals_blocked():
            undo.callback(self._socket.close)
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", _MODULE, *numbers],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=child_environment(),
            )
            undo.pop_all()
        self.pid = self._process.pid

    @property
    def has_answered(self) -> bool:
        """Whether the process has imported everything, or has ended."""
        return self._ready or bool(select.select([self._socket], [], [], 0)[0])

    async def fork(self, request: bytes, files: Sequence[int], ended: Callable[[int], None]) -> Child:
        """Forks a process, whose end is reported to `ended`. Raises _EndedError, or OSError."""
        if not self._ready:
            await self._receive()
            self._ready = True
        read, write = os.pipe()
        try:
            try:
                socket.send_fds(self._socket, [request], [read, *files])
            except ConnectionError:
                raise _EndedError from None
            pid, error = json.loads(await self._receive())
            if error:
                raise OSError(error, os.strerror(error))
            child = Child(pid, ended)
            os.write(write, b"b")  # the process may begin
            return child
        finally:
            os.close(read)
            os.close(write)

    async def _receive(self) -> bytes:
        """Returns the next message. Raises _EndedError at the end, and after a long silence."""
        message = asyncio.get_running_loop().create_task(self._next_message())
        silence = Silence(self.pid)
        try:
            while not silence.longer_than(START_SECONDS):
                done, _ = await asyncio.wait([message], timeout=LOOK_SECONDS)
                if done:
                    return message.result()
        finally:
            message.cancel()
        raise _EndedError

    async def _next_message(self) -> bytes:
        try:
            message = await asyncio.get_running_loop().sock_recv(self._socket, _MAX_ANSWER)
        except ConnectionError:
            message = b""
        if not message:
            raise _EndedError
        return message

    def close(self) -> None:
        """Ends the process."""
        self._socket.close()
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def _signals_blocked() -> Iterator[None]:
    """Blocks SIGTERM and SIGINT in processes started in this block: a terminal sends Ctrl-C to all."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
