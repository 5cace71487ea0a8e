"""Workers, builder, supervisor and clients killed and stopped at random moments under load."""

from __future__ import annotations

import math
import os
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.campaigns.campaign import Campaign
from lab.campaigns.client import Task
from lab.campaigns.hits import HUNG, Hits
from lab.campaigns.processes import (
    READY_SECONDS,
    ClientProcess,
    DaemonProcess,
    build_ledger,
    children,
    ended,
    fork_servers,
    size_of,
    state_of,
)
from lab.measurement.timing import summarise
from lab.system.processes import process_start_time

#: sequences of two clients together
_SEQUENCES = 32
_VOCABULARIES = ((300, 0), (1000, 7))
#: short, so that hung workers are replaced during the campaign
_SILENCE_SECONDS = 2
#: low limits, so that caches have the same size at the beginning and at the end
_OPTIONS = (
    *("--workers", "2", "--limit", f"silence_seconds={_SILENCE_SECONDS}"),
    *("--limit", "max_templates=16", "--limit", "max_programs=4"),
)
#: promised delay of errors on a machine that is not overloaded; longer delays are printed
_SOON_MS = 100.0
_STOPPED_SECONDS = (0.02, 0.4)
#: correct answers of every client between two faults
_ANSWERS = 64
#: weight of each fault. In the first half the supervisor dies, too. In the second half it must survive and
#: not grow
_FIRST = {"kill_worker": 6, "stop_worker": 4, "hang_worker": 0.4, "kill_builder": 4, "stop_builder": 2}
_FIRST |= {
    "kill_fork_server": 0.5,
    "kill_supervisor": 3,
    "stop_supervisor": 2,
    "kill_client": 4,
    "stop_client": 4,
}
_THEN = {"kill_client": 6, "stop_client": 6, "stop_worker": 6, "stop_supervisor": 3, "kill_builder": 0.5}
_THEN |= {"stop_builder": 3, "kill_worker": 0.5, "kill_fork_server": 0.5}


def run(campaign: Campaign) -> None:
    """Runs the campaign. A case is a fault.

    Figures: faults by kind, losses that no fault explains, and how soon waiting clients got an error.
    """
    with tempfile.TemporaryDirectory() as name:
        field = Field(Path(name), campaign)
        try:
            field.work()
        finally:
            field.close()
    for kind, count in sorted(campaign.outcomes.items()):
        campaign.figure(kind, count, "times")
    campaign.figure("all", campaign.done, "times")
    done = sum((client.done for client in field.everyone), Counter[str]())
    for what in ("answers", "requests", "starts", "forks"):
        campaign.figure(what, done[what], "times")
    campaign.figure("lost_sequences", sum(loss["what"] == "step" for loss in field.losses()), "sequences")
    wrong = [text for client in field.everyone for text in client.wrong]
    unexplained = field.unexplained()
    campaign.figure("killed_for_silence", field.silent, "workers")
    campaign.figure("mixed_answers", len(wrong), "answers", target=0)
    campaign.figure("lost_beyond_hit", len(unexplained), "losses", target=0)
    for kind, values in field.delays().items():
        summary = summarise(values)
        campaign.report.samples(f"faults.heard_of_{kind}_ms", values, "ms")
        campaign.figure(f"heard_of_{kind}_count", summary.count, "waits")
        campaign.figure(f"heard_of_{kind}_median_ms", summary.median, "ms")
        campaign.figure(f"heard_of_{kind}_p99_ms", summary.p99, "ms")
        campaign.figure(f"heard_of_{kind}_max_ms", summary.maximum, "ms")
    campaign.figure("rss_growth", field.grown_kib / 1024, "MiB")
    campaign.figure("descriptors_growth", field.grown_descriptors, "descriptors")
    campaign.figure("left_behind", len(field.left), "things", target=0)
    problems = [*wrong, *map(str, unexplained), *(f"left behind: {thing}" for thing in field.left)]
    for problem in problems:
        campaign.failed(campaign.done, problem)
    if unexplained:
        print(f"the daemons' log:\n{field.daemon_log}", file=sys.stderr)


@dataclass
class Field:
    """A daemon and two clients under load, with the faults so far."""

    folder: Path
    campaign: Campaign
    left: list[str] = field(default_factory=list)
    #: the log of all daemons
    daemon_log: str = ""
    #: workers that the supervisor killed for silence although no fault had stopped them
    silent: int = 0
    grown_kib: float = 0.0
    grown_descriptors: int = 0

    def __post_init__(self) -> None:
        self.random = self.campaign.random(0)
        self._hung: set[int] = set()
        self._wasm = str(build_ledger(self.folder))
        self._daemon = DaemonProcess(self.folder, *_OPTIONS)
        self._hits = Hits()
        #: all processes so far, with their start times, since pids are reused
        self._seen: set[tuple[int, int | None]] = set()
        #: children of this process that the campaign has not started; tests have some
        self._others = set(children(os.getpid()))
        self._clients: list[ClientProcess] = []
        self.everyone: list[ClientProcess] = []

    def work(self) -> None:
        """Runs both halves."""
        self._start_daemon()
        for place in range(len(_VOCABULARIES)):
            self._clients.append(self._client(place))
        self._go_on("the beginning")
        self._half(_FIRST, 0.6)
        before = self._level()
        self._half(_THEN, 1.0)
        after = self._level()
        self.grown_kib, self.grown_descriptors = after[0] - before[0], after[1] - before[1]

    def close(self) -> None:
        """Ends everything and records what is left."""
        for client in self._clients:
            status = client.stop()
            if status != 0 or client.stopped is None or client.stopped["descriptors"]:
                self._problem(f"a client ended with status {status} and left {client.stopped}")
        self._see(self._daemon.pid, *children(self._daemon.pid))
        self._daemon.stop()
        self.daemon_log = self._daemon.log.read_text()
        for pid in map(int, re.findall(r"\(pid (\d+)\) is silent", self.daemon_log)):
            if pid not in self._hung:
                self.silent += 1
                self._hits.add(pid, HUNG, 0.0)
        deadline = time.monotonic() + 5
        while (left := self._left()) and time.monotonic() < deadline:
            time.sleep(0.02)
        self.left += left

    def losses(self) -> list[dict[str, Any]]:
        """Returns the losses of all clients."""
        return [loss for client in self.everyone for loss in client.losses]

    def unexplained(self) -> list[dict[str, Any]]:
        """Returns the losses that no fault explains."""
        refused = [
            what for client in self.everyone for what in client.refused if not self._hits.was_down(what)
        ]
        return [loss for loss in self.losses() if not self._hits.explain(loss)] + refused

    def delays(self) -> dict[str, list[float]]:
        """Returns `Hits.delays` without the losses. Prints long delays."""
        delays = self._hits.delays(self.losses())
        for delay, loss in sorted(
            (pair for pairs in delays.values() for pair in pairs), key=lambda it: -it[0]
        ):
            if delay > _SOON_MS:
                print(f"{delay:.0f} ms after the death: {loss}", file=sys.stderr)
        return {kind: [delay for delay, _ in pairs] for kind, pairs in delays.items()}

    # -- faults -----------------------------------------------------------------------------------

    def _half(self, kinds: dict[str, float], until: float) -> None:
        """Causes faults until this fraction of the time or of the cases is over."""
        campaign = self.campaign
        seconds, count = campaign.seconds or math.inf, campaign.count or math.inf
        while campaign.elapsed < until * seconds and campaign.done < until * count and campaign.failures < 20:
            (kind,) = self.random.choices(list(kinds), list(kinds.values()))
            time.sleep(self.random.uniform(0, 0.05))
            act: Callable[[], None] = getattr(self, f"_{kind}")
            act()
            campaign.ended(kind)
            self._go_on(kind)

    def _problem(self, what: str) -> None:
        self.campaign.failed(self.campaign.done, what)

    def _kill_worker(self) -> None:
        self._kill(self._worker(), "worker")

    def _hang_worker(self) -> None:
        """Stops a worker for good. The supervisor must notice and replace it."""
        pid = self._worker()
        start = process_start_time(pid)
        self._hung.add(pid)
        self._hits.add(pid, HUNG)
        os.kill(pid, signal.SIGSTOP)
        if not ended(pid, start, 3 * _SILENCE_SECONDS + 5):
            self._problem(f"worker {pid} hangs and is not replaced")
            os.kill(pid, signal.SIGKILL)

    def _stop_worker(self) -> None:
        self._pause(self._worker())

    def _kill_builder(self) -> None:
        self._kill(self._processes()["builder"], "builder")

    def _stop_builder(self) -> None:
        self._pause(self._processes()["builder"])

    def _kill_fork_server(self) -> None:
        """Kills the process that the next worker would be forked from. Nothing may be lost."""
        for pid in fork_servers(self._daemon.pid):
            os.kill(pid, signal.SIGKILL)

    def _kill_supervisor(self) -> None:
        family = {pid: process_start_time(pid) for pid in children(self._daemon.pid)}
        self._see(self._daemon.pid, *family)
        now = time.monotonic()
        for pid in family:
            self._hits.add(pid, "worker_of_supervisor", now)
        os.kill(self._daemon.pid, signal.SIGKILL)
        self._daemon.wait()
        for pid, start in family.items():
            if not ended(pid, start, 5):
                self._problem(f"process {pid} has outlived its supervisor")
        time.sleep(self.random.uniform(0, 0.3))
        self._start_daemon()
        self._hits.down(now, time.monotonic())

    def _stop_supervisor(self) -> None:
        self._pause(self._daemon.pid)

    def _kill_client(self) -> None:
        place = self.random.randrange(len(self._clients))
        client = self._clients[place]
        os.kill(client.pid, signal.SIGKILL)
        client.wait()
        deadline = time.monotonic() + 5
        while client.pid in self._daemon.client_pids():
            if time.monotonic() > deadline:
                self._problem(f"client {client.pid} was killed, but the daemon still has traces of it")
                break
            time.sleep(0.02)
        self._clients[place] = self._client(place)

    def _stop_client(self) -> None:
        stopped, *others = self.random.sample(self._clients, len(self._clients))
        os.kill(stopped.pid, signal.SIGSTOP)
        try:
            if not all(other.await_answers(_ANSWERS) for other in others):
                self._problem("a client waits for another, stopped client")
        finally:
            os.kill(stopped.pid, signal.SIGCONT)

    def _kill(self, pid: int, kind: str) -> None:
        self._hits.add(pid, kind)
        os.kill(pid, signal.SIGKILL)

    def _pause(self, pid: int) -> None:
        """Stops a process for so short a time that nothing may be lost."""
        os.kill(pid, signal.SIGSTOP)
        time.sleep(self.random.uniform(*_STOPPED_SECONDS))
        os.kill(pid, signal.SIGCONT)

    # -- processes ------------------------------------------------------------------------------------

    def _start_daemon(self) -> None:
        self._daemon.start()
        self._see(self._daemon.pid, *children(self._daemon.pid))

    def _see(self, *pids: int) -> None:
        self._seen |= {(pid, process_start_time(pid)) for pid in pids}

    def _client(self, place: int) -> ClientProcess:
        size, shift = _VOCABULARIES[place]
        count, seed = _SEQUENCES // len(_VOCABULARIES), self.random.getrandbits(31)
        client = ClientProcess(Task(str(self._daemon.socket), self._wasm, size, shift, count, seed))
        self.everyone.append(client)
        self._see(client.pid)
        return client

    def _worker(self) -> int:
        """Returns the pid of a live worker."""
        living = [pid for name, pid in self._processes().items() if name.startswith("worker")]
        living = [pid for pid in living if state_of(pid) not in ("", "Z")] or living
        return self.random.choice(living)

    def _processes(self) -> dict[str, int]:
        """Returns all processes, once all live: waits for the replacement of a killed one."""
        deadline = time.monotonic() + READY_SECONDS
        while True:
            found = self._daemon.processes()
            self._see(*found.values())
            if all(state_of(pid) not in ("", "Z") for pid in found.values()):
                return found
            if time.monotonic() > deadline:
                raise RuntimeError(f"not all processes of the daemon have been replaced: {found}")
            time.sleep(0.02)

    def _go_on(self, after: str) -> None:
        """Waits until every client gets correct answers again."""
        for client in self._clients:
            if not client.await_answers(_ANSWERS):
                self._problem(f"after {after} client {client.pid} got no more answers")

    def _level(self) -> tuple[float, int]:
        """Returns the memory in KiB and the descriptors of the daemon's processes under load."""
        time.sleep(1)
        sizes = [size_of(pid) for pid in self._processes().values()]
        return sum(s.rss_kib for s in sizes if s), sum(s.descriptors for s in sizes if s)

    def _left(self) -> list[str]:
        processes = [
            f"process {pid}" for pid, start in self._seen if start and process_start_time(pid) == start
        ]
        ours = set(children(os.getpid())) - self._others
        zombies = [f"zombie {pid}" for pid in sorted(ours) if state_of(pid) == "Z"]
        return processes + zombies
