"""Runs `aici serve` in a separate process, on a free port of loopback."""

from __future__ import annotations

import json
import re
import signal
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx2

from lab.runners.compiled import share
from lab.system.forked import SERVER, TORCH, Forked
from lab.system.processes import family, left_behind
from lab.system.waiting import PATIENCE

PROGRAM = ("pyaici.cli", "serve")
_ADDRESS = re.compile(r"running on http://127\.0\.0\.1:(\d+)")


class Serving:
    """A running server. As a context manager, it shuts down in order and must leave no processes behind."""

    def __init__(
        self,
        log: Path,
        *arguments: str,
        seconds: float = PATIENCE,
        program: tuple[str, ...] = PROGRAM,
    ) -> None:
        self.log = log
        if "--store" not in arguments:  # the default store has the tags of other tests
            arguments = (*arguments, "--store", str(share(log.with_name(f"{log.name}-store"))))
        module, *command = program
        # llama.cpp serves the default model and needs no torch; vLLM configures torch before it imports it
        torch = not command or ("vllm" not in arguments and not {"hf", "--model"}.isdisjoint(arguments))
        imports = (*SERVER, *TORCH) if torch else SERVER
        with log.open("wb") as output:
            self.process = Forked(
                module,
                [*command, "--port", "0", *arguments],
                imports=imports,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for pytest, which ends the server
            )
        deadline = time.monotonic() + seconds
        while (found := _ADDRESS.search(self.text())) is None:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server did not start ({self.process.poll()}):\n{self.text()}")
            time.sleep(0.05)
        self.port = int(found[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def text(self) -> str:
        """Returns what the server has printed."""
        return self.log.read_text(errors="replace")

    def wait_for(self, pattern: str, seconds: float = PATIENCE) -> None:
        """Waits until the server has printed a match; the line of a request may come after its answer."""
        deadline = time.monotonic() + seconds
        while re.search(pattern, self.text()) is None:
            assert self.process.poll() is None and time.monotonic() < deadline, self.text()[-2000:]
            time.sleep(0.02)

    def client(self, token: str | None = None, **options: Any) -> httpx2.Client:
        """Returns a client, optionally with a user's token."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx2.Client(base_url=self.url, headers=headers, timeout=PATIENCE, **options)

    def run(self, **body: Any) -> dict[str, Any]:
        """Returns the answer of `POST /v1/run` without a stream and without a token."""
        with self.client() as client:
            answer = client.post("/v1/run", json={"stream": False, **body})
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def events(self, path: str = "/v1/run", **body: Any) -> list[Any]:
        """Returns the data of all events of a stream, without [DONE]."""
        with self.client() as client, client.stream("POST", path, json=body) as answer:
            assert answer.status_code == 200, answer.read()
            return list(read_events(answer))

    def metrics(self) -> dict[str, float]:
        """Returns the figures of /metrics, by name and labels."""
        with self.client() as client:
            lines = client.get("/metrics").text.splitlines()
        pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return {name: float(value) for name, _, value in pairs}

    def stop(self, number: int = signal.SIGTERM, seconds: float = PATIENCE) -> int:
        """Stops the server with a signal and returns its exit status. No process of it may be left."""
        members = family(self.process.pid)
        self.process.send_signal(number)
        status = self.process.wait(seconds)
        assert left_behind(members) == []
        return status

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.stop()


def read_events(answer: httpx2.Response) -> Any:
    """Yields the data of the events of a stream as they arrive."""
    for line in answer.iter_lines():
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line[6:])
