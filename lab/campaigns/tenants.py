"""All attacks of one user at once against two well-behaved users of a real server, over HTTP.

The model is tiny, with random weights and the tokenizer of the default model. A token takes some
milliseconds, so that delays are visible. ``--only N`` runs attack N of the table alone.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from aicirt.settings import DaemonSettings
from lab import ROOT
from lab.campaigns.campaign import Campaign
from lab.campaigns.memory import MemoryWatch
from lab.campaigns.tenancy.client import Client
from lab.campaigns.tenancy.victims import Victim, regex_request, script_request
from lab.measurement.timing import percentile
from lab.servers.server_process import server_process
from lab.servers.tiny_model import make_tiny_model
from lab.system.processes import left_behind
from pyaici.bundled import bundled_controllers
from pyaici.client.control import Control
from pyaici.server.http.users import Role, UserFile
from pyaici.server.scheduling.streams import MAX_BACKLOGS_BYTES
from pyaici.server.settings import ServerSettings

RATIO_TARGET = 3.0
#: fraction of the time without attacks, half of it before and half after them
_ALONE = 0.3
#: concurrent requests: a quarter of the default, for two cores
_STREAMS = 16
_SECONDS = 60.0
#: errors of each victim that are described; all are counted
_MAX_ERRORS = 10
#: bytes of a compiler for the largest module, and MiB for caches, buffers and allocators
_COMPILER_BYTES, _BESIDES_MIB = 1 << 30, 512
#: seconds that the attacker's process has to end
_END_SECONDS = 60


def run(campaign: Campaign) -> None:
    """Runs the campaign. A case is a request of a victim. It fails if the answer is wrong."""
    seconds = campaign.seconds or _SECONDS
    with tempfile.TemporaryDirectory() as folder:
        temporary = Path(folder) / "tmp"
        temporary.mkdir()
        users = UserFile(Path(folder) / "users.json")
        tokens = {name: users.add(name, Role.RUN) for name in ("ann", "bob")}
        tokens["mallory"] = users.add("mallory", Role.UPLOAD)
        model = make_tiny_model(Path(folder) / "model")
        options = [f"--model={model}", f"--users={users.path}", f"--store={Path(folder) / 'store'}"]
        options.append(f"--max-streams={_STREAMS}")
        with server_process(*options, temporary=temporary) as server:
            port = int(server.address.rpartition(":")[2])
            place = Place(campaign, port, tokens, MemoryWatch(server.pid))
            try:
                place.play(seconds, Path(folder), temporary)
            finally:
                log = server.log.read_text(errors="replace")
                campaign.folder.mkdir(parents=True, exist_ok=True)
                (campaign.folder / "tenants-server.log").write_text(log)
        left = left_behind(place.memory.members) + sorted(path.name for path in temporary.iterdir())
        for name in left:
            campaign.failed(-1, f"left behind: {name}")
        campaign.figure("left_behind", len(left), "things", target=0)


@dataclass
class Place:
    """A server with users."""

    campaign: Campaign
    port: int
    tokens: dict[str, str]
    memory: MemoryWatch

    def play(self, seconds: float, folder: Path, temporary: Path) -> None:
        """Runs the victims alone, with the attacks, and alone again; adds the figures."""
        victims = [
            Victim("ann", Client(self.port, self.tokens["ann"], "127.0.0.2"), script_request),
            Victim("bob", Client(self.port, self.tokens["bob"], "127.0.0.2"), regex_request),
        ]
        for victim in victims:  # loads controllers and scripts
            victim.ask()
            if victim.errors:
                raise RuntimeError(f"a victim failed before any attack: {victim.errors[0]}")
        with self.memory:
            before = self.memory.look()
            workers = self.memory.workers()
            found: dict[str, dict[str, list[float]]] = {"alone": {}, "beside": {}}
            self._phase(victims, seconds * _ALONE / 2, found["alone"])
            stalls = self._stalls()
            with self._attacks(folder) as results:
                self._phase(victims, seconds * (1 - _ALONE), found["beside"])
                stalls = self._stalls() - stalls
            after = self.memory.look()
            self._phase(victims, seconds * _ALONE / 2, found["alone"])
            bound = before["all"] + self._growth(temporary)
            restarts = self._restarts() + len(workers - self.memory.workers())
        self._report_times(victims, found)
        self._report_memory(before, after, bound)
        self._report_attacks(results)
        self.campaign.figure("loop_stall_ms", _percentile_of(stalls, 0.99) * 1000, "ms")
        self.campaign.figure("restarts", restarts, "processes", target=0)
        if restarts:
            self.campaign.failed(-1, f"{restarts} processes were replaced")

    def _phase(self, victims: list[Victim], seconds: float, found: dict[str, list[float]]) -> None:
        """Runs both victims for this time and collects their samples."""
        stop = threading.Event()
        threads = [threading.Thread(target=victim.work, args=[stop]) for victim in victims]
        for victim in victims:
            victim.forget()
        for thread in threads:
            thread.start()
        stop.wait(seconds)
        stop.set()
        for thread, victim in zip(threads, victims, strict=True):
            thread.join()
            found.setdefault(f"{victim.name}.gap", []).extend(victim.gaps)
            found.setdefault(f"{victim.name}.first", []).extend(victim.firsts)

    @contextmanager
    def _attacks(self, folder: Path) -> Iterator[dict[str, Counter[str]]]:
        """Runs all attacks until the end of the block; the yielded dict then has their outcomes."""
        popular = hashlib.sha256(bundled_controllers()["regex"].read_bytes()).hexdigest()
        words = [str(self.port), self.tokens["mallory"], str(folder), popular]
        if self.campaign.only is not None:
            words.append(str(self.campaign.only))
        results: dict[str, Counter[str]] = {}
        with subprocess.Popen(
            [sys.executable, "-m", "lab.campaigns.tenancy.attacker", *words],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            yield results
            try:
                output, _ = process.communicate(timeout=_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        results.update({name: Counter(counts) for name, counts in json.loads(output).items()})

    def _restarts(self) -> int:
        (sample,) = self._figures("aici_worker_restarts_total")
        return int(sample.value)

    def _stalls(self) -> Counter[float]:
        """Returns how often the event loop kept a task waiting for at most so many seconds, by seconds."""
        buckets = self._figures("aici_loop_stall_seconds_bucket")
        return Counter({float(bucket.labels["le"]): int(bucket.value) for bucket in buckets})

    def _figures(self, name: str) -> list[Sample]:
        """Returns the server's figures of this name."""
        _, body = Client(self.port, "", "127.0.0.2").ask("GET", "/metrics")
        families = text_string_to_metric_families(body.decode())
        return [sample for family in families for sample in family.samples if sample.name == name]

    def _report_times(self, victims: list[Victim], found: dict[str, dict[str, list[float]]]) -> None:
        campaign, ratios = self.campaign, []
        campaign.figure("load", os.getloadavg()[0], "processes")
        for victim in victims:
            campaign.ended("requests", victim.requests)
            for number, problem in enumerate(victim.errors):
                if number < _MAX_ERRORS:
                    campaign.failed(number, problem)
            campaign.failures += max(0, len(victim.errors) - _MAX_ERRORS)
            for what, name in (("gap", "token"), ("first", "first_token")):
                for when, samples in found.items():
                    values = samples[f"{victim.name}.{what}"]
                    for percent in (50, 99):
                        figure = f"{victim.name}.{name}_p{percent}_ms.{when}"
                        campaign.figure(figure, percentile(values, percent), "ms")
            gaps = [found[when][f"{victim.name}.gap"] for when in ("alone", "beside")]
            alone, beside = (percentile(values, 99) for values in gaps)
            ratios.append(beside / alone)
            campaign.figure(f"{victim.name}.p99_ratio", ratios[-1], "ratio", target=RATIO_TARGET)
            campaign.figure(f"{victim.name}.requests", victim.requests, "requests")
        campaign.figure("victim_p99_ratio", max(ratios), "ratio", target=RATIO_TARGET)
        campaign.figure("innocent_errors", sum(len(victim.errors) for victim in victims), "errors", target=0)

    def _growth(self, temporary: Path) -> float:
        """Returns the MiB by which one user can make all processes grow under the configured limits."""
        (socket,) = temporary.glob("*/aicirt.sock")
        with closing(Control(socket)) as control:
            health = control.call("health")
        processes = [health["builder"], *health["workers"]]
        guests = sum(process["memory"]["owner_limit"] for process in processes)
        server = ServerSettings().max_bodies_bytes + MAX_BACKLOGS_BYTES
        compilers = DaemonSettings().owner_compilations * _COMPILER_BYTES
        return float(guests + server + compilers) / (1 << 20) + _BESIDES_MIB

    def _report_memory(self, before: dict[str, float], after: dict[str, float], bound: float) -> None:
        self.campaign.figure("server_mb.bound", bound, "MiB")
        peak = {kind: max(values) for kind, values in self.memory.by_kind.items()}
        if peak["all"] > bound:
            self.campaign.failed(-1, f"{peak['all']:.0f} MiB of memory, over the bound of {bound:.0f} MiB")
        for kind, mib in peak.items():
            name = "server_mb" if kind == "all" else f"server_mb.{kind}"
            self.campaign.figure(name, mib, "MiB")
            self.campaign.figure(f"{name}.before", before.get(kind, 0.0), "MiB")
            self.campaign.figure(f"{name}.after", after.get(kind, 0.0), "MiB")

    def _report_attacks(self, results: dict[str, Counter[str]]) -> None:
        for name, counts in results.items():
            for outcome, count in sorted((+counts).items()):
                self.campaign.figure(f"attack.{name}.{outcome}", count, "times")


def _percentile_of(counts: Counter[float], part: float) -> float:
    """Returns the upper bound of the bucket that this part of a cumulative histogram ends in."""
    least = part * max(counts.values(), default=0)
    return min((bound for bound, count in counts.items() if count >= least), default=math.inf)
