"""Constant churn of two clients with different vocabularies: no mixed-up answers, no growth."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from pathlib import Path

from lab.campaigns.campaign import Campaign
from lab.campaigns.client import Task
from lab.campaigns.processes import ClientProcess, DaemonProcess, Size, build_ledger, size_of
from lab.measurement.timing import percentile

#: default duration
_SECONDS = 900.0
_SEQUENCES = 32
#: probability of other actions in each step, see `Load.churn`
_CHURN = {"clone": 0.2, "prepare": 0.1, "upload": 0.01}
_SAMPLES = 200
#: low limits, so that caches are full within the first tenth and evict entries from then on
_LIMITS = ("--limit", "max_templates=32", "--limit", "max_programs=8")


def run(campaign: Campaign) -> None:
    """Runs one case. Figures: actions, wrong answers, and growth from the first to the last tenth."""
    seconds, seed = campaign.seconds or _SECONDS, campaign.seed
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wasm = str(build_ledger(folder))
        with DaemonProcess(folder, "--workers", "2", *_LIMITS) as daemon:
            socket, half = str(daemon.socket), _SEQUENCES // 2
            clients = [
                ClientProcess(Task(socket, wasm, vocab_size, shift, half, seed + shift, _CHURN))
                for vocab_size, shift in ((300, 0), (1000, 7))
            ]
            try:
                began = [client.await_answers(1000) for client in clients]
                names = _names(daemon, clients)
                sizes = _watch(names, seconds)
                killed = sorted(set(names.values()) - set(_names(daemon, clients).values()))
            finally:
                statuses = [client.stop() for client in clients]
    done: Counter[str] = sum((client.done for client in clients), Counter())
    wrong = [text for client in clients for text in client.wrong]
    losses = [loss for client in clients for loss in client.losses]
    for what, count in sorted(done.items()):
        campaign.figure(what.replace(": ", "_"), count, "times")
    campaign.figure("mixed_answers", len(wrong), "answers", target=0)
    for name, seen in sizes.items():
        campaign.report.samples(f"soak.{name}.rss", [size.rss_kib / 1024 for size in seen], "MiB")
    for name, (first, last) in _growth(sizes).items():
        campaign.figure(f"{name}.rss_first", first.rss_kib / 1024, "MiB")
        campaign.figure(f"{name}.rss_growth", (last.rss_kib - first.rss_kib) / 1024, "MiB")
        campaign.figure(f"{name}.descriptors_growth", last.descriptors - first.descriptors, "descriptors")
    left = [
        str(client.stopped) for client in clients if client.stopped is None or any(client.stopped.values())
    ]
    campaign.figure("left_behind", len(left), "things", target=0)
    problems = [*wrong, *map(str, losses), *(f"left behind: {thing}" for thing in left)]
    problems += [f"process {pid} has ended" for pid in killed]
    problems += ["a client got no answers"] * began.count(False)
    problems += [f"a client ended with status {status}" for status in statuses if status]
    for problem in problems:
        campaign.failed(0, problem)
    campaign.ended("soaked")


def _names(daemon: DaemonProcess, clients: list[ClientProcess]) -> dict[str, int]:
    return daemon.processes() | {f"client{place}": client.pid for place, client in enumerate(clients)}


def _watch(names: dict[str, int], seconds: float) -> dict[str, list[Size]]:
    sizes: dict[str, list[Size]] = {name: [] for name in names}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for name, pid in names.items():
            size = size_of(pid)
            if size is not None:
                sizes[name].append(size)
        time.sleep(seconds / _SAMPLES)
    return sizes


def _growth(sizes: dict[str, list[Size]]) -> dict[str, tuple[Size, Size]]:
    """Returns the medians of the first and of the last tenth."""
    found = {}
    for name, values in sizes.items():
        tenth = max(1, len(values) // 10)
        first, last = (
            Size(
                int(percentile([size.rss_kib for size in part], 50)),
                int(percentile([size.descriptors for size in part], 50)),
            )
            for part in (values[:tenth], values[-tenth:])
        )
        found[name] = first, last
    return found
