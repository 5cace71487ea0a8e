"""Runs programs in forks of one process that has imported vLLM: an import takes 10 s of a processor."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import runpy
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from tests.forked import Process
from tests.pyaici.engines.vllm.engines import ENVIRONMENT

_ROOT = Path(__file__).resolve().parents[4]


class Program(Process):
    """A Python program in a fork of a process with vLLM; it has some methods of `subprocess.Popen`.

    `argv`: the arguments of Python, which are `-m` and a module, or a file, and then those of the program.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        output: IO[bytes],
        errors: IO[bytes] | None = None,
        env: dict[str, str],
        cwd: Path | None = None,
    ) -> None:
        self.returncode: int | None = None
        self._events, other_end = socket.socketpair(type=socket.SOCK_SEQPACKET)
        request = {"argv": list(argv), "env": env, "cwd": str(cwd or Path.cwd())}
        files = [output.fileno(), (errors or output).fileno(), other_end.fileno()]
        with other_end:
            socket.send_fds(_nursery(), [json.dumps(request).encode()], files)
        self.pid = int(self._events.recv(16))

    def wait(self, timeout: float | None = None) -> int:
        """Returns the exit status, which is negative after a signal, when the program has ended."""
        if self.returncode is None:
            self._events.settimeout(timeout or 0.0 if timeout is not None else None)
            try:
                first = self._events.recv(16)
            except (BlockingIOError, TimeoutError):
                raise subprocess.TimeoutExpired("a program with vLLM", timeout or 0) from None
            self.returncode = int(first)
            self._events.close()
        return self.returncode


def run_program(
    argv: Sequence[str],
    env: dict[str, str],
    *,
    cwd: Path | None = None,
    timeout: float = 400,
) -> subprocess.CompletedProcess[str]:
    """Runs a `Program`, as `subprocess.run` does with `capture_output=True`."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        program = Program(argv, output=output, errors=errors, env=env, cwd=cwd)
        try:
            status = program.wait(timeout)
        except BaseException:
            program.kill()
            raise
        texts = []
        for file in (output, errors):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    return subprocess.CompletedProcess(list(argv), status, *texts)


@functools.cache
def _nursery() -> socket.socket:
    """Starts the process that forks programs; it ends when this socket is closed."""
    mine, other_end = socket.socketpair(type=socket.SOCK_SEQPACKET)
    with other_end:
        # the connection must not be an open file of any other process
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(other_end.fileno())],
            pass_fds=[other_end.fileno()],
            stdin=subprocess.DEVNULL,
            env=os.environ | ENVIRONMENT,
            cwd=_ROOT,
            start_new_session=True,
        )

    def end() -> None:
        mine.close()
        process.wait()

    atexit.register(end)
    return mine


def _serve(connection: socket.socket) -> None:
    """Forks a process for each program; each of them starts the program and reports its status."""
    import setproctitle
    from vllm.entrypoints.openai import api_server as api_server

    setproctitle.getproctitle()  # it finds the title's place only before the environment changes
    if len(threading.enumerate()) > 1:
        raise RuntimeError(f"a fork would lose threads: {threading.enumerate()}")
    watching = set()
    while True:
        message, files, *_ = socket.recv_fds(connection, 1 << 20, 3)
        watching -= {pid for pid in watching if os.waitpid(pid, os.WNOHANG)[0]}
        if not message:
            return
        if (pid := os.fork()) == 0:
            connection.close()
            _watch(json.loads(message), files)
        watching.add(pid)
        for file in files:
            os.close(file)


def _watch(request: dict[str, Any], files: list[int]) -> None:
    """Starts a program, writes its process id and then its status to the last file, and ends this process."""
    pid = os.fork()
    if pid == 0:
        os.close(files[2])
        _become(request, files)
    os.write(files[2], str(pid).encode())
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(BrokenPipeError):
        os.write(files[2], str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _become(request: dict[str, Any], files: list[int]) -> None:
    """Runs a program in this process, and ends the process as Python would."""
    os.setsid()
    os.dup2(files[0], 1)
    os.dup2(files[1], 2)
    os.close(files[0])
    os.close(files[1])
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    tempfile.tempdir = None  # of another environment
    status: Any = 0
    try:
        first, *rest = request["argv"]
        folder = request["cwd"] if first == "-m" else str(Path(first).parent)
        sys.path[:1] = [folder, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        if first == "-m":
            sys.argv = rest
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        else:
            sys.argv = request["argv"]
            runpy.run_path(first, run_name="__main__")
    except SystemExit as end:
        status = end.code
        if status is not None and not isinstance(status, int):
            print(status, file=sys.stderr)
            status = 1
    except BaseException:
        traceback.print_exc()
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status or 0)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
