"""Concurrent streams of vLLM's server, and the private runtime of its controllers."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from lab.system.processes import command_line, family, private_daemons
from lab.vllm.server import MODEL, Server
from pyaici.client.control import Control


class Stream:
    """A completion that a thread receives as a stream."""

    def __init__(
        self, server: Server, prompt: str, controller: str = "", arg: str = "", **options: Any
    ) -> None:
        """Begins. `controller`: without one if it is empty. Sampling is greedy."""
        extra: dict[str, Any] = {"ignore_eos": True}
        if controller:
            extra["vllm_xargs"] = {"aici_controller": controller, "aici_arg": arg}
        self._request: dict[str, Any] = {"prompt": prompt, "temperature": 0, "extra_body": extra, **options}
        self._server = server
        self.text = ""
        self.chunks = 0
        self.finish: str | None = None
        #: what the client raised
        self.error: Exception | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._receive, daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return not self._thread.is_alive()

    def wait(self) -> Stream:
        """Waits for the end, and returns the stream."""
        self._thread.join()
        return self

    def stop(self) -> Stream:
        """Closes the connection at the next chunk, waits for that, and returns the stream."""
        self._stopping = True
        return self.wait()

    def _receive(self) -> None:
        try:
            chunks = self._server.client.completions.create(model=MODEL, stream=True, **self._request)
            for chunk in chunks:
                self.text += chunk.choices[0].text
                self.finish = chunk.choices[0].finish_reason or self.finish
                self.chunks += 1
                if self._stopping:
                    chunks.close()
                    return
        except Exception as error:
            self.error = error


def await_chunks(streams: list[Stream], chunks: int = 3) -> None:
    """Waits until each stream has received so many chunks. Raises AssertionError if one ends before."""
    while any(stream.chunks < chunks for stream in streams):
        for stream in streams:
            assert not stream.ended or stream.chunks >= chunks, stream.error
        time.sleep(0.01)


class PrivateRuntime:
    """The aicirt that the engine of a server has started."""

    def __init__(self, server: Server) -> None:
        """Raises AssertionError unless there is exactly one."""
        daemons = private_daemons(family(server.process.pid))
        socket = {pid: words for pid in daemons if b"--socket" in (words := command_line(pid).split(b"\0"))}
        ((self.pid, words),) = socket.items()
        self.socket = Path(words[words.index(b"--socket") + 1].decode())
        #: the pid of the engine's process
        self.engine = int(words[words.index(b"--owner-pid") + 1])

    def health(self) -> dict[str, Any]:
        """Returns the health of the runtime."""
        control = Control(self.socket)
        try:
            return dict(control.call("health"))
        finally:
            control.close()

    def workers(self) -> list[int]:
        """Returns the pids of the workers."""
        return [worker["pid"] for worker in self.health()["workers"]]

    def sequences(self) -> int:
        """Returns the number of running controllers."""
        return sum(worker["sequences"] for worker in self.health()["workers"])
