"""Starts programs of Python by fork, in a process that has imported what they need.

Importing the server takes 2 s of a processor, torch and transformers take 4 s, and vLLM 10 s. `Forked`
replaces `subprocess.Popen` for `python -m MODULE` and `python FILE.py`; `run_forked` replaces
`subprocess.run`. The programs see their own arguments, environment, folder, standard streams and signals, as
after an exec; only their modules are there already. Tests of starting itself use `subprocess`.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import io
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from lab import ROOT

#: modules that each program needs
CLI = (
    "pyaici.cli.run",
    "pyaici.cli.services",
    "pyaici.cli.modules",
    "pyaici.cli.test",
    "pyaici.client.runtime",
)
SERVER = (*CLI, "pyaici.server.serve")
TORCH = ("torch", "transformers", "transformers.models.llama.modeling_llama", "pyaici.engines.hf.engine")
VLLM = ("lab.vllm.shims.imported",)
#: libraries must start no threads, which a fork would lose
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
_MAX_MESSAGE = 1 << 20
#: the process that forks, once there is one
parents: list[subprocess.Popen[bytes]] = []


@functools.cache
def _parent() -> socket.socket:
    """Starts the process that forks, and returns the socket to it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MAX_MESSAGE)
    with theirs:
        command = [sys.executable, "-m", "lab.system.forked", str(theirs.fileno())]
        environment = os.environ | _ENVIRONMENT
        parent = subprocess.Popen(command, cwd=ROOT, env=environment, pass_fds=[theirs.fileno()])
    parents.append(parent)

    def end() -> None:
        ours.close()
        parent.wait()

    atexit.register(end)
    return ours


class Forked:
    """`python -m MODULE ARGUMENTS` or `python FILE.py ARGUMENTS`, with the interface of `subprocess.Popen`.

    `imports`: modules to import before the fork. `start_new_session`: as for `subprocess.Popen`.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        *,
        imports: Sequence[str],
        stdout: IO[Any] | int,
        stderr: IO[Any] | int,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        start_new_session: bool = False,
    ) -> None:
        request = {
            "module": module,
            "arguments": list(arguments),
            "imports": list(imports),
            "env": dict(os.environ if env is None else env),
            "cwd": str(cwd or Path.cwd()),
            "session": start_new_session,
        }
        self.returncode: int | None = None
        read, write = os.pipe()
        self._status = os.fdopen(read, "rb", buffering=0)
        outputs = [out if isinstance(out, int) else out.fileno() for out in (stdout, stderr)]
        with open(os.devnull, "rb") as nothing:
            message = json.dumps(request).encode()
            socket.send_fds(_parent(), [message], [nothing.fileno(), *outputs, write])
        os.close(write)
        line = self._status.readline()
        if not line:
            raise RuntimeError(f"the process that forks has ended before it started {module}")
        self.pid = int(line)

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end and returns the exit status. Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
            with self._status as status:
                self.returncode = int(status.readline())
        return self.returncode

    def poll(self) -> int | None:
        """Returns the exit status, or None while the program runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number: int) -> None:
        """Sends a signal, unless the program has ended. The parent does, since it knows what has ended."""
        if self.poll() is None:
            _parent().send(json.dumps({"pid": self.pid, "signal": number}).encode())

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run_forked(
    module: str,
    *arguments: str,
    imports: Sequence[str] = CLI,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    merged: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end and returns its status and output; `merged`: of both streams in `stdout`."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        err = out if merged else errors
        process = Forked(module, arguments, imports=imports, stdout=out, stderr=err, env=env, cwd=cwd)
        try:
            status = process.wait()
        finally:
            process.kill()
        texts = []
        for file in (out, errors):
            file.seek(0)
            texts.append(file.read().decode(errors="surrogateescape"))
    return subprocess.CompletedProcess([module, *arguments], status, *texts)


def _serve(control: socket.socket) -> str | None:
    """Forks at each request. Returns in the fork with the module to run, and at the end with None."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    statuses: dict[int, int] = {}
    while True:
        ready = select.select([control, read], [], [])[0]
        if read in ready:
            os.read(read, 4096)
            while statuses and (ended := os.waitpid(-1, os.WNOHANG))[0]:
                status = statuses.pop(ended[0])
                try:
                    os.write(status, b"%d\n" % os.waitstatus_to_exitcode(ended[1]))
                except BrokenPipeError:  # the test looks at it no more
                    pass
                os.close(status)
        if control not in ready:
            continue
        message, fds, _, _ = socket.recv_fds(control, _MAX_MESSAGE, 4)
        if not message:  # the tests have ended, perhaps without their end of these programs
            for pid in statuses:
                os.kill(pid, signal.SIGTERM)
            return None
        request = json.loads(message)
        if "signal" in request:
            if request["pid"] in statuses:
                os.kill(request["pid"], request["signal"])
            continue
        for name in request["imports"]:
            importlib.import_module(name)
        assert threading.active_count() == 1
        # a SIGTERM that comes before the fork has its own way to end must not be ignored
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if pid == 0:
            control.close()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for fd in (read, write, *statuses.values()):
                os.close(fd)
            return _become(request, fds)
        os.write(fds[3], b"%d\n" % pid)
        statuses[pid] = fds[3]
        for fd in fds[:3]:
            os.close(fd)


def _become(request: dict[str, Any], fds: list[int]) -> str:
    """Makes this fork the requested program, and returns its module or file."""
    if request["session"]:
        os.setsid()
    for number, fd in enumerate(fds[:3]):
        os.dup2(fd, number)
    for fd in fds:
        os.close(fd)
    assert isinstance(sys.stdout, io.TextIOWrapper)
    sys.stdout.reconfigure(line_buffering=os.isatty(1))
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    tempfile.tempdir = None  # of another environment
    program = str(request["module"])
    folder = str(Path(program).parent) if program.endswith(".py") else request["cwd"]
    sys.path[:0] = [folder, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    sys.argv = [program, *request["arguments"]]
    return program


if __name__ == "__main__":
    # Ctrl-C is for pytest, and so is a signal to all of its group: the programs end with the tests
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    program = _serve(socket.socket(fileno=int(sys.argv[1])))
    if program is not None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if program.endswith(".py"):
            runpy.run_path(program, run_name="__main__")
        else:
            runpy.run_module(program, run_name="__main__", alter_sys=True)
