"""A server with 128 controlled streams, beside busy processes, clients that leave or never read, and kills.

Streams begin, end and break while four processes take all processors, a thousand connections are idle, long
prompts are read, and a worker of the runtime is killed. No stream may fail without a reason, and everything
is given back. Then the runtime itself is killed.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from lab.campaigns.campaign import Campaign
from lab.campaigns.memory import MemoryWatch
from lab.campaigns.processes import size_of
from lab.campaigns.tenancy.client import Client, RefusedError
from lab.measurement.timing import percentile
from lab.servers.server_process import ServerProcess, server_process
from lab.system.processes import left_behind
from pyaici.client.control import Control

_SECONDS = 120.0
#: text of a stream under test, and an argument that no stream had before
_LETTERS = "[a-zA-Z ,.]"
#: errors of requests whose worker, or runtime, was killed
_LOST = ("worker_died", "supervisor_died")
#: seconds in which clients must learn of a death
_SOON_SECONDS = 2.0
#: seconds that the server has to give everything back
_IDLE_SECONDS = 30.0
_GAP_RATIO = 4.0
#: MiB by which all processes may grow under load: caches, buffers of connections, arenas of allocators
_MAX_GROWTH = 256.0
#: descriptors by which the process of the server may grow: links to workers, and their ends that it watches
_MAX_DESCRIPTORS = 16
_HOG = "while True: pass"
#: connections that one address opens
_EACH = 200


@dataclass(frozen=True)
class Size:
    """The size of a run."""

    streams: int = 128
    #: processes that never sleep
    hogs: int = 4
    idle: int = 1000
    #: clients that never read
    silent: int = 2
    #: tokens of a long prompt
    long: int = 3000
    #: options of the server, e.g. its model
    options: tuple[str, ...] = ()


def run(campaign: Campaign, size: Size = Size()) -> None:
    """Runs the campaign. A case is a stream. It fails if it ends with an error that no kill explains."""
    seconds = campaign.seconds or _SECONDS
    with tempfile.TemporaryDirectory() as folder:
        temporary = Path(folder) / "tmp"
        temporary.mkdir()
        options = (
            "--workers=2",
            f"--store={Path(folder) / 'store'}",
            f"--max-connections={size.idle + 1000}",
        )
        with server_process(*options, *size.options, temporary=temporary) as server:
            try:
                place = Place(campaign, size, server, temporary)
                place.play(seconds)
            finally:
                log = server.log.read_text(errors="replace")
                campaign.folder.mkdir(parents=True, exist_ok=True)
                (campaign.folder / "server-log.txt").write_text(log)
        left = left_behind(place.memory.members) + sorted(path.name for path in temporary.iterdir())
    _none(campaign, "left_behind", left)
    _none(campaign, "tracebacks", [line for line in log.splitlines() if line.startswith("Traceback")])
    warnings = [line for line in log.splitlines() if " WARNING aicirt" in line]
    campaign.figure("warnings", len(warnings), "lines")


def _is_closed(connection: socket.socket) -> bool:
    """Returns whether the other end has closed a connection that does not block."""
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def _none(campaign: Campaign, name: str, found: list[str]) -> None:
    """Adds the number of things that must not be, and a failure for each."""
    campaign.figure(name, len(found), "things", target=0)
    for what in found:
        campaign.failed(-1, f"{name}: {what}")


@dataclass
class Reader:
    """A client that sends streamed requests, one after the other, and checks the answers."""

    client: Client
    #: the body of a request, by its number
    body: Callable[[int], dict[str, Any]]
    #: events after which it leaves, by the number of the request; None = it reads to the end
    leaves: int | None = None
    requests: int = 0
    #: (time, code, message) of errors
    errors: list[tuple[float, str, str]] = field(default_factory=list)
    #: seconds between two texts, and from a request to its first text
    gaps: list[float] = field(default_factory=list)
    firsts: list[float] = field(default_factory=list)

    def work(self, stop: threading.Event) -> None:
        """Sends requests until `stop` is set."""
        while not stop.is_set():
            error = self.ask()
            if error is not None:
                self.errors.append((time.monotonic(), *error))
                stop.wait(0.1)

    def ask(self) -> tuple[str, str] | None:
        """Sends a request; returns code and message of what is wrong with the answer, or None."""
        body = {"stream": True, "temperature": 1, **self.body(self.requests)}
        self.requests += 1
        last = time.monotonic()
        text, finish, times = "", None, self.firsts
        try:
            for number, event in enumerate(self.client.events("/v1/completions", body)):
                if "error" in event:
                    return str(event["error"]["code"]), str(event["error"]["message"])
                if number == self.leaves:
                    return None
                if not event:
                    good = finish is not None and ("regex" not in body or re.fullmatch(f"{_LETTERS}*", text))
                    return None if good else ("wrong", f"{finish} {text!r}")
                (choice,) = event["choices"]
                finish = choice["finish_reason"]
                text += choice["text"]
                if choice["text"]:
                    now = time.monotonic()
                    times.append(now - last)
                    last, times = now, self.gaps
        except RefusedError as error:
            status, code = str(error).split()
            return code, f"status {status}"
        except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
            return "broken", repr(error)
        return "broken", "the stream ended without [DONE]"


@dataclass
class Place:
    """A server under load."""

    campaign: Campaign
    size: Size
    server: ServerProcess
    temporary: Path
    #: time and pid of each kill of a worker
    kills: list[tuple[float, int]] = field(default_factory=list)
    innocent: int = 0

    def __post_init__(self) -> None:
        self.port = int(self.server.address.rpartition(":")[2])
        self.memory = MemoryWatch(self.server.pid)

    def play(self, seconds: float) -> None:
        """Runs all phases and adds the figures."""
        with self.memory:
            for reader in self._readers(2):
                problem = reader.ask()
                if problem is not None:
                    raise RuntimeError(f"a request failed before any load: {problem}")
            before, descriptors = self.memory.look(), self._descriptors()
            self._gaps(seconds / 4)
            with self._hogs(), self._idle():
                self._crowd(seconds / 2)
            self._await_idle(descriptors)
            after = self.memory.look()
            growth = after["all"] - before["all"]
            self.campaign.figure("growth_mb", growth, "MiB", target=_MAX_GROWTH)
            if growth > _MAX_GROWTH:
                self.campaign.failed(-1, f"the processes have grown by {growth:.0f} MiB")
            self._end_of_runtime()
        self.campaign.figure("innocent_errors", self.innocent, "errors", target=0)

    # -- the phases -------------------------------------------------------------------------------

    def _gaps(self, seconds: float) -> None:
        """Measures the gaps between texts, alone and beside long prompts."""
        found = []
        for beside in (False, True):
            readers = self._readers(4, tokens=64)
            long = [self._long_reader()] if beside else []
            self._work([*readers, *long], seconds / 2)
            self._judge([*readers, *long])
            found.append([gap for reader in readers for gap in reader.gaps])
        alone, beside_long = (percentile(gaps, 99) for gaps in found)
        for name, value in (("alone", alone), ("beside_long", beside_long)):
            self.campaign.figure(f"gap_p99_ms.{name}", 1000 * value, "ms")
        self.campaign.figure("gap_p99_ratio", beside_long / alone, "ratio", target=_GAP_RATIO)

    def _crowd(self, seconds: float) -> None:
        """Runs all streams. In the middle, kills a worker."""
        readers = self._readers(self.size.streams)
        for number, reader in enumerate(readers):
            reader.leaves = 1 + number // 2 % 6 if number % 2 else None
        readers.append(self._long_reader())
        with self._silent():
            self._work(readers, seconds, self._kill_worker)
        delays = self._judge(readers)
        self.campaign.figure("worker_death_s", max(delays, default=0.0), "s", target=_SOON_SECONDS)
        self.campaign.figure("lost", len(delays), "requests")
        for name, values in (
            ("first", [first for reader in readers[:-1] for first in reader.firsts]),
            ("gap", [gap for reader in readers[:-1] for gap in reader.gaps]),
        ):
            for percent in (50, 99, 100):
                value = percentile(values, percent) if values else 0.0
                self.campaign.figure(f"crowd.{name}_p{percent}_s", value, "s")

    def _end_of_runtime(self) -> None:
        """Kills the runtime beside free and controlled streams."""
        readers = self._readers(8, tokens=1000)
        free = [Reader(Client(self.port, "", "127.0.0.2"), lambda _: {"prompt": "A", "max_tokens": 16})]
        self._work([*readers, *free], 4.0, self._kill_runtime)
        delays = self._judge([*readers, *free])
        self.campaign.figure("runtime_death_s", max(delays, default=0.0), "s", target=_SOON_SECONDS)
        if free[0].errors or not delays:
            self.campaign.failed(-1, f"after the runtime's death: {free[0].errors} {len(delays)}")

    def _judge(self, readers: list[Reader]) -> list[float]:
        """Counts the requests; returns how late clients learned of the deaths of workers."""
        delays, innocent = [], []
        for reader in readers:
            self.campaign.ended("requests", reader.requests)
            for when, code, message in reader.errors:
                kill = next((begun for begun, pid in self.kills if str(pid) in message), None)
                if code in _LOST and (kill is not None or code == "supervisor_died"):
                    delays += [when - kill] if kill is not None else []
                else:
                    innocent.append(f"{code}: {message}")
        for problem in innocent:
            self.campaign.failed(-1, problem)
        self.innocent += len(innocent)
        return delays

    # -- clients ----------------------------------------------------------------------------------

    def _readers(self, count: int, tokens: int = 8) -> list[Reader]:
        """Returns clients with regular expressions. Every eighth request has a new one."""

        def body(reader: int, number: int) -> dict[str, Any]:
            length = 400 if (reader + number) % 8 else 401 + 17 * reader + number
            return {"prompt": f"Letter {number}:", "regex": f"{_LETTERS}{{{length}}}", "max_tokens": tokens}

        return [
            Reader(Client(self.port, "", f"127.0.0.{2 + number % 8}"), partial(body, number))
            for number in range(count)
        ]

    def _long_reader(self) -> Reader:
        """Returns a client with long prompts, of which no two begin alike."""

        def body(number: int) -> dict[str, Any]:
            prompt = f"{number}:" + " word" * self.size.long
            return {"prompt": prompt, "regex": f"{_LETTERS}{{20}}", "max_tokens": 4}

        return Reader(Client(self.port, "", "127.0.0.10"), body)

    def _work(
        self, readers: list[Reader], seconds: float, middle: Callable[[], object] = lambda: None
    ) -> None:
        """Lets the clients work for this time, and calls `middle` at half of it."""
        stop = threading.Event()
        threads = [threading.Thread(target=reader.work, args=[stop]) for reader in readers]
        for thread in threads:
            thread.start()
        stop.wait(seconds / 2)
        middle()
        stop.wait(seconds / 2)
        stop.set()
        for thread in threads:
            thread.join()

    @contextmanager
    def _silent(self) -> Iterator[None]:
        """Holds streams that are never read."""
        client = Client(self.port, "", "127.0.0.11")
        body = {"prompt": "A", "regex": f"{_LETTERS}*", "max_tokens": 4000, "stream": True, "logprobs": 5}
        content = json.dumps(body).encode()
        with ExitStack() as stack:
            for _ in range(self.size.silent):
                connection = stack.enter_context(client.connect())
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                connection.sendall(client.head("/v1/completions", len(content)) + content)
            yield

    @contextmanager
    def _idle(self) -> Iterator[None]:
        """Holds connections that send nothing; the server closes them after a while, and they come again."""
        stop = threading.Event()
        held: list[socket.socket | None] = [None] * self.size.idle

        def hold() -> None:
            while not stop.wait(1):
                for number, connection in enumerate(held):
                    if stop.is_set():
                        return
                    if connection is None or _is_closed(connection):
                        if connection is not None:
                            connection.close()
                        address = f"127.0.1.{1 + number // _EACH}"
                        connection = held[number] = Client(self.port, "", address).connect()
                        connection.setblocking(False)

        thread = threading.Thread(target=hold)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            for connection in held:
                if connection is not None:
                    connection.close()

    @contextmanager
    def _hogs(self) -> Iterator[None]:
        with ExitStack() as stack:
            for _ in range(self.size.hogs):
                process = stack.enter_context(subprocess.Popen([sys.executable, "-c", _HOG]))
                stack.callback(process.kill)
            yield

    # -- the runtime ------------------------------------------------------------------------------

    def _health(self) -> dict[str, Any]:
        (socket,) = self.temporary.glob("*/aicirt.sock")
        with closing(Control(socket)) as control:
            return dict(control.call("health"))

    def _kill_worker(self) -> None:
        pid = self._health()["workers"][0]["pid"]
        self.kills.append((time.monotonic(), pid))
        os.kill(pid, signal.SIGKILL)

    def _kill_runtime(self) -> None:
        health, now = self._health(), time.monotonic()
        self.kills += [(now, worker["pid"]) for worker in health["workers"]]
        os.kill(health["pid"], signal.SIGKILL)

    def _await_idle(self, descriptors: int) -> None:
        """Waits until no sequence is left, and no more than `descriptors` and a few more are open."""
        deadline = time.monotonic() + _IDLE_SECONDS
        left, more = 1, 0
        while (left or more > _MAX_DESCRIPTORS) and time.monotonic() < deadline:
            time.sleep(0.1)
            left, more = self._sequences(), self._descriptors() - descriptors
        _none(self.campaign, "sequences_left", [f"{left} sequences"] if left else [])
        self.campaign.figure("descriptors_growth", more, "descriptors", target=_MAX_DESCRIPTORS)
        if more > _MAX_DESCRIPTORS:
            self.campaign.failed(-1, f"{more} more descriptors are open than before")

    def _sequences(self) -> int:
        return sum(worker["sequences"] for worker in self._health()["workers"])

    def _descriptors(self) -> int:
        """Returns those of the server's process; the runtime keeps some for each snapshot."""
        size = size_of(self.server.pid)
        return 0 if size is None else size.descriptors
