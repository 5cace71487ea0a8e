"""Starts a private aicirt for this process, and ends it."""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aicirt.contract.errors import RuntimeFailure, RuntimeTimeoutError
from aicirt.settings import CLOSE_SECONDS, START_SECONDS
from aicirt.system.files import Closing
from aicirt.system.processes import child_environment
from aicirt.system.shortage import describe
from aicirt.system.silence import LOOK_SECONDS, Silence


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
