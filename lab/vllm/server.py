"""vLLM's OpenAI server as a process, with the official client."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from functools import cached_property
from pathlib import Path
from typing import Any

import openai

from lab.system.forked import VLLM, Forked
from lab.system.ports import free_port
from lab.system.processes import family, left_behind, private_daemons
from lab.vllm.engines import CACHE_BYTES

#: name of the model in requests
MODEL = "default"
#: variables that matter when vLLM is imported: a server with one of its own imports it itself
_IMPORTED = {"PYTHONPATH", "TORCH_COMPILE_DISABLE", "VLLM_LOGGING_LEVEL"}
#: has vLLM fork its processes
_FORKING = "lab.vllm.shims.forked"
#: starts them as vLLM does
_SPAWNING = "lab.vllm.shims.spawned"
_ARGUMENTS = (
    "--dtype=float32",
    "--enforce-eager",
    "--max-model-len=512",
    "--max-num-seqs=8",
    "--block-size=32",
    f"--kv-cache-memory-bytes={CACHE_BYTES}",
)


class Server:
    """A running server on a free local port. Use as a context manager.

    `forked`: whether its processes are forks, which takes a third of the time. A fork also has the pipes and
    sockets of others, so a test of the death of a process must start them as vLLM does.
    """

    def __init__(
        self, model: Path, log: Path, arguments: tuple[str, ...] = (), *, forked: bool = True, **env: str
    ) -> None:
        self.log = log
        host, port = "127.0.0.1", free_port()
        self.url = f"http://{host}:{port}"
        module = "vllm.entrypoints.openai.api_server"
        command = [f"--model={model}", f"--served-model-name={MODEL}", f"--host={host}"]
        command += [f"--port={port}", *_ARGUMENTS, *arguments]
        inherited = {name: value for name, value in os.environ.items() if name != "VLLM_CPU_KVCACHE_SPACE"}
        # otherwise the server closes a connection just when the client, which does not retry, uses it again
        inherited["VLLM_HTTP_TIMEOUT_KEEP_ALIVE"] = "600"
        self.process: subprocess.Popen[bytes] | Forked
        with log.open("wb") as output:
            # Ctrl-C must reach only pytest, which ends the server
            options: Any = {"stdout": output, "env": inherited | env, "start_new_session": True}
            start = _FORKING if forked else _SPAWNING
            if env.keys() & _IMPORTED:
                argv = [sys.executable, "-m", start, module, *command]
                self.process = subprocess.Popen(argv, stderr=subprocess.STDOUT, **options)
            else:
                self.process = Forked(start, [module, *command], imports=VLLM, stderr=output, **options)

    @cached_property
    def client(self) -> openai.OpenAI:
        """A client without retries, so that tests see every failure."""
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=None)

    def complete(self, prompt: str, **options: Any) -> str:
        """Returns the greedy text after a prompt, through the completions API."""
        settings = {"temperature": 0.0, "max_tokens": 16, **options}
        return str(self.client.completions.create(model=MODEL, prompt=prompt, **settings).choices[0].text)

    def wait_until_ready(self) -> None:
        """Raises RuntimeError, with the end of the log, if the server ends before it is ready."""
        while not self.is_healthy():
            if self.process.poll() is not None:
                raise RuntimeError(f"the server did not start ({self.process.poll()}):\n{self.tail()}")
            time.sleep(0.2)

    def is_healthy(self) -> bool:
        """Returns True if GET /health succeeds."""
        try:
            with urllib.request.urlopen(f"{self.url}/health") as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def tail(self, lines: int = 60) -> str:
        """Returns the last lines of the server's log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def close(self) -> int:
        """Sends SIGTERM. The server must end cleanly and leave nothing behind. Returns its status."""
        members = family(self.process.pid)
        members |= private_daemons(members)
        ended = self.process.poll()  # not None if the server, or the test, has ended it before
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait()
        except BaseException:  # e.g. pytest's time limit
            for pid in members:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            raise
        left = left_behind(members)
        for pid in members:
            if f"process {pid}" in left:
                os.kill(pid, signal.SIGKILL)
        assert not left, f"the server left behind: {left}\n{self.tail()}"
        status = self.process.returncode
        assert ended is not None or status == 0, f"the server ended with status {status}\n{self.tail()}"
        return status

    def __enter__(self) -> Server:
        try:
            self.wait_until_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Servers:
    """Starts servers when called. A server with another configuration is closed first."""

    def __init__(self, model: Path, folder: Path) -> None:
        self._model = model
        self._folder = folder
        self._key: tuple[Any, ...] = ()
        self._count = 0
        self.current: Server | None = None

    def __call__(self, *arguments: str, **env: str) -> Server:
        """Returns a server with these arguments and variables in addition to the usual ones."""
        key = (arguments, sorted(env.items()))
        if self.current is not None and (key != self._key or self.current.process.poll() is not None):
            self.close()
        if self.current is None:
            self._count += 1
            server = Server(self._model, self._folder / f"server-{self._count}.log", arguments, **env)
            self.current = server.__enter__()
            self._key = key
        return self.current

    def close(self) -> None:
        """Ends the server, if there is one."""
        server, self.current = self.current, None
        if server is not None:
            server.close()
