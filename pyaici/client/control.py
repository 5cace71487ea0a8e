"""The supervisor: the connection to it, for calls from any thread, and a private aicirt of this process."""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aicirt.contract.errors import (
    ClosedError,
    ForeignDaemonError,
    ProtocolError,
    RuntimeFailure,
    RuntimeTimeoutError,
    SupervisorDiedError,
    error_from_wire,
)
from aicirt.contract.messages import PROTOCOL_VERSION, REPLY_ERROR, REPLY_NUMBER, REPLY_VALUE, Call, Reply
from aicirt.contract.modules import ControllerInfo
from aicirt.ipc.frames import FrameSocket, peer_credentials
from aicirt.settings import CALL_SECONDS, CLOSE_SECONDS, START_SECONDS
from aicirt.system.files import Closing
from aicirt.system.processes import child_environment
from aicirt.system.shortage import describe
from aicirt.system.silence import LOOK_SECONDS, Silence

#: an event of this thread, if its calls may be abandoned: when it is set, aicirt is asked to cancel them
abandoned: ContextVar[threading.Event | None] = ContextVar("abandoned", default=None)
#: how often a waiting call checks whether it has been abandoned, and how silent aicirt is
_LOOK_SECONDS = 0.1
#: a waiting call asks after this time of silence whether aicirt still answers
_PING_SECONDS = 5.0


class Control:
    """Makes blocking calls over the control socket, from any thread. Calls do not delay each other."""

    def __init__(self, path: Path, owner: str | None = None, role: str = "") -> None:
        """Connects. Raises RuntimeFailure if nothing listens there, ForeignDaemonError if another user does.

        `owner`: the owner whose limits and tags count. `role`: "answers" gives up all rights but to answer
        calls.
        """
        self._path = path
        self._sending = threading.Lock()
        #: guards what follows; notified when an answer has come or the reading thread has stopped
        self._changed = threading.Condition()
        self._number = 0
        #: one of the waiting threads reads for all of them
        self._reading = False
        self._waiting: set[int] = set()
        self._answers: dict[int, list[Any]] = {}
        #: messages of aicirt so far
        self._received = 0
        self._closed = False
        try:
            sock = socket.socket(socket.AF_UNIX)
        except OSError as error:
            raise RuntimeFailure(
                f"cannot create a socket for the connection to aicirt: {describe(error)}"
            ) from error
        sock.settimeout(CALL_SECONDS)
        try:
            sock.connect(str(path))
        except OSError as error:
            sock.close()
            raise RuntimeFailure(
                f"no aicirt listens on {path} ({error.strerror or error}); give the socket of a "
                "running daemon (--socket or AICI_SOCKET), or start one with 'aici runtime --socket PATH'; "
                "without a socket, engines start their own"
            ) from error
        self._pid, uid = peer_credentials(sock)
        if uid not in (os.geteuid(), 0):
            sock.close()
            raise ForeignDaemonError(
                f"the process that listens on {path} belongs to user {uid}, not to {os.geteuid()}; start "
                "your own daemon with 'aici runtime --socket PATH', in a folder that only you can write to",
                uid=uid,
            )
        sock.settimeout(_LOOK_SECONDS)
        self._socket = FrameSocket(sock)
        self.hello: dict[str, Any] = self.call(
            "hello", protocol=PROTOCOL_VERSION, pid=os.getpid(), owner=owner, role=role
        )

    def call(self, name: str, fds: Sequence[int] = (), **args: Any) -> Any:
        """Returns the supervisor's answer. Raises its error, SupervisorDiedError or RuntimeTimeoutError.

        Sends `fds` along. A call may take as long as the supervisor answers at all: it limits the work of
        others itself. Raises ClosedError after `close`, and for calls that `close` interrupts. A call that is
        `abandoned` ends with an error.
        """
        number = self.post(name, fds, **args)
        event, received, silence, asked = abandoned.get(), self._received, Silence(self._pid), False
        while (message := self.poll(number, _LOOK_SECONDS)) is None:
            if event is not None and event.is_set():
                event = None
                self.drop_answer(self.post("cancel", call=number))
            if received != self._received:
                received, silence, asked = self._received, Silence(self._pid), False
            elif not asked and silence.seconds() > _PING_SECONDS:
                asked = True
                self.drop_answer(self.post("ping"))
            elif silence.longer_than(CALL_SECONDS):
                self.drop_answer(number)
                raise RuntimeTimeoutError(
                    f"aicirt did not answer {name!r}, and was silent for {CALL_SECONDS:g} s"
                )
        if message[REPLY_ERROR] is not None:
            raise error_from_wire(message[REPLY_ERROR])
        return message[REPLY_VALUE]

    def post(self, name: str, fds: Sequence[int] = (), **args: Any) -> int:
        """Sends a call without waiting for the answer; returns its number for `poll` or `drop_answer`.

        Raises SupervisorDiedError, RuntimeTimeoutError if the supervisor does not read it, or ClosedError.
        """
        if self._closed:
            raise self._broken("")
        with self._changed:
            self._number += 1
            number = self._number
            self._waiting.add(number)
        try:
            with self._sending:
                silence = Silence(self._pid)
                self._socket.send(
                    Call(number, name, args, len(fds)),
                    list(fds),
                    hopeless=lambda: silence.longer_than(CALL_SECONDS),
                )
        except TimeoutError as error:
            self.drop_answer(number)
            problem = f"aicirt did not read {name!r}, and was silent for {CALL_SECONDS:g} s"
            raise RuntimeTimeoutError(problem) from error
        except OSError as error:
            self.drop_answer(number)
            raise self._broken(str(error)) from error
        return number

    def poll(self, number: int, seconds: float = 0.0) -> list[Any] | None:
        """Returns the fields of the `Reply` to a posted call, once; None if none comes within `seconds`.

        Raises SupervisorDiedError, or ClosedError.
        """
        try:
            message = self._wait_for_answer(number, time.monotonic() + seconds)
        except TimeoutError:
            return None
        except OSError as error:
            self.drop_answer(number)
            raise self._broken(str(error)) from error
        self.drop_answer(number)
        if message is None:
            raise self._broken("aicirt closed it")
        if len(message) != len(Reply._fields):
            raise ProtocolError(f"a reply of aicirt has {len(message)} fields, not {len(Reply._fields)}")
        return message

    def drop_answer(self, number: int) -> None:
        """Discards the answer to a posted call, now or when it comes."""
        with self._changed:
            self._waiting.discard(number)
            self._answers.pop(number, None)

    def _broken(self, how: str) -> RuntimeFailure:
        if self._closed:
            return ClosedError()
        return SupervisorDiedError(f"the connection to aicirt at {self._path} broke: {how}")

    def _wait_for_answer(self, number: int, deadline: float) -> list[Any] | None:
        """Waits for the answer with this number and reads for others too; None when the connection ends.

        Raises TimeoutError at the deadline (`time.monotonic`).
        """
        while True:
            with self._changed:
                while number not in self._answers and self._reading:
                    if not self._changed.wait(max(0.0, deadline - time.monotonic())):
                        raise TimeoutError
                if number in self._answers:
                    return self._answers.pop(number)
                self._reading = True
            message = None
            try:
                message = self._socket.receive(deadline)
            finally:
                with self._changed:
                    self._reading = False
                    self._received += message is not None
                    # else it is the late answer to a call whose answer is not wanted any more
                    if message and message[REPLY_NUMBER] in self._waiting:
                        self._answers[message[REPLY_NUMBER]] = message
                    self._changed.notify_all()
            if message is None:
                return None

    def is_open(self) -> bool:
        """Returns whether the connection is open, as far as can be known without a call."""
        sock = self._socket.socket
        poll = select.poll()
        try:
            # not a look at the next byte, which another thread may read first: then the look would wait
            poll.register(sock, select.POLLRDHUP)
            return not poll.poll(0)
        except (OSError, ValueError):
            return False

    def close(self) -> None:
        """Closes the connection, also in forks; the supervisor then frees the client's resources."""
        self._closed = True
        with contextlib.suppress(OSError):  # the connection is broken already
            self._socket.socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def list_page(control: Control, after: str = "", found_by: str | None = None) -> list[ControllerInfo]:
    """Returns the next modules by id, after the id `after`; an empty list at the end.

    `found_by`: list only modules that this owner has uploaded, or that have a tag.
    """
    page = control.call("list", after=after, found_by=found_by)
    return [ControllerInfo.from_wire(wire) for wire in page]


def list_modules(control: Control) -> Iterator[ControllerInfo]:
    """Yields all modules by id."""
    after = ""
    while page := list_page(control, after):
        yield from page
        after = page[-1].id


@dataclass(frozen=True, slots=True)
class WorkerAddress:
    """The address of a worker, as sent by the supervisor."""

    worker: int
    generation: int
    pid: int

    @classmethod
    def from_wire(cls, wire: dict[str, Any]) -> WorkerAddress:
        """Reads the answer to `destination`, or the same fields of the answer to `instantiate`."""
        return cls(wire["worker"], wire["generation"], wire["pid"])


@dataclass(frozen=True, slots=True)
class Placement:
    """The worker that a sequence will start in, and the snapshot there that it starts from."""

    address: WorkerAddress
    #: number of the snapshot in that worker
    template: int
    has_pre: bool
    has_post: bool
    repeatable: bool

    @classmethod
    def from_wire(cls, wire: dict[str, Any]) -> Placement:
        """Reads the answer to `instantiate`."""
        kind = wire["has_pre"], wire["has_post"], wire.get("repeatable", False)
        return cls(WorkerAddress.from_wire(wire), wire["template"], *kind)

    def to_wire(self) -> list[int]:
        """Returns the fields that report to the supervisor that the snapshot is gone."""
        return [self.address.worker, self.address.generation, self.template]


class DetachedProcess:
    """The interface of `subprocess.Popen` for a process that is not a child."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        #: None while it lives; -9 if it was killed here, else 0: only a parent learns the status
        self.returncode: int | None = None
        self._fd = os.pidfd_open(pid)
        self._killed = False

    def poll(self) -> int | None:
        """Returns `returncode` if the process has ended, else None, without waiting."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end and returns `returncode`. Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._fd], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            self.returncode = -signal.SIGKILL if self._killed else 0
            os.close(self._fd)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Sends a signal; does nothing if the process has ended."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._fd, number)

    def kill(self) -> None:
        self._killed = True
        self.send_signal(signal.SIGKILL)


def start_detached(command: Sequence[str], *, stdout: Any, stderr: Any, **options: Any) -> DetachedProcess:
    """Starts a process through a shell that exits, so that it is not a child of this process.

    Options are those of `subprocess.Popen`; the process's output goes to `stderr`.
    """
    shell = ["/bin/sh", "-c", '"$@" >&2 & echo $!', "sh", *command]
    done = subprocess.run(shell, stdout=subprocess.PIPE, stderr=stderr, check=True, **options)
    return DetachedProcess(int(done.stdout))


class Daemon(Closing):
    """An aicirt that belongs to this process and ends with it."""

    def __init__(
        self,
        *,
        workers: int | None = None,
        limits: Mapping[str, int] | None = None,
        store: Path | None = None,
        options: Sequence[str] = (),
        detached: bool = False,
    ) -> None:
        """Starts the daemon and waits until it is ready.

        `options`: more options of `aici runtime`. `detached`: the daemon is not a child of this process. Some
        engines kill their children when they end; a detached daemon then ends by itself and cleans up.

        Raises RuntimeFailure, with the daemon's log, if it does not start.
        """
        self._process: subprocess.Popen[bytes] | DetachedProcess | None = None
        self._detached = detached
        # the name is known before the folder exists: Ctrl-C may come at any time and must leave nothing
        # short, because the path of a socket has at most 107 bytes
        name = f"aici-{os.getuid()}-{secrets.token_hex(6)}"
        try:
            self._folder = Path(tempfile.gettempdir(), name)
        except OSError as error:
            raise RuntimeFailure(f"aicirt cannot be started: {describe(error)}") from error
        try:
            self._folder.mkdir(mode=0o700)
            self.socket_path = self._folder / "aicirt.sock"
            self._log = self._folder / "aicirt.log"
            command = ["--socket", str(self.socket_path), "--folder", str(self._folder)]
            if workers is not None:
                command += ["--workers", str(workers)]
            if store is not None:
                command += ["--store", str(store)]
            for name, value in (limits or {}).items():
                command += ["--limit", f"{name}={value}"]
            self._start_process([*command, *options])
        except OSError as error:
            self.close()
            raise RuntimeFailure(f"aicirt cannot be started: {describe(error)}") from error
        except BaseException:
            self.close()
            raise

    def _start_process(self, options: list[str]) -> None:
        command = [sys.executable, "-P", "-m", "aicirt", "--log-level", "warning", *options]
        read_fd, write_fd = os.pipe()
        try:
            try:
                with self._log.open("wb") as log:
                    command += ["--ready-fd", str(write_fd), "--owner-pid", str(os.getpid())]
                    start = start_detached if self._detached else subprocess.Popen
                    self._process = start(
                        command,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        pass_fds=[write_fd],
                        env=child_environment(),
                        # Ctrl-C in the terminal is for the engine, which closes the daemon. Not a session of
                        # its own: Linux shares processors among sessions first, and might keep a
                        # single-threaded engine waiting for 100 ms beside busy guests
                        process_group=0,
                    )
            finally:
                os.close(write_fd)
            self.pid = self._process.pid
            self._wait_ready(read_fd)
        finally:
            os.close(read_fd)

    def log(self) -> str:
        """Returns what the daemon has written to its log."""
        with contextlib.suppress(OSError):
            return self._log.read_text(errors="replace")
        return ""

    def close(self) -> None:
        """Asks the daemon to end; kills it when it was silent for `CLOSE_SECONDS`."""
        process = self._process
        if process is not None:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                silence = Silence(process.pid, family=True)
                while process.returncode is None:
                    try:
                        process.wait(LOOK_SECONDS)
                    except subprocess.TimeoutExpired:
                        if silence.longer_than(CLOSE_SECONDS):
                            process.kill()
                            process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _wait_ready(self, fd: int) -> None:
        assert self._process is not None
        silence = Silence(self._process.pid, family=True)  # the daemon waits for its workers
        while not select.select([fd], [], [], LOOK_SECONDS)[0]:
            if silence.longer_than(START_SECONDS):
                raise RuntimeTimeoutError(
                    f"aicirt was not ready, and did nothing for {START_SECONDS:g} s; its log:\n{self.log()}"
                )
        if os.read(fd, 64) != b"ready\n":
            status = self._process.wait()
            raise RuntimeFailure(f"aicirt did not start (status {status}); its log:\n{self.log()}")
