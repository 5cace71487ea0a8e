"""Replicas of a server with a shared store: throughput, uploads that others see, starts and pulls."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from lab.measurement.timing import alternate, percentile, summarise
from lab.report import Report
from lab.servers.registry import running_registry
from lab.servers.server_process import serving
from pyaici.bundled import find_controller
from pyaici.rest import RestClient, ServerError

RATIO_TARGET, VISIBLE_TARGET, RESTART_TARGET, PULL_TARGET = 1.7, 1000.0, 10.0, 2.0
#: clients at the same time, requests of a round, and tokens of each
_CLIENTS, _REQUESTS, _QUICK_REQUESTS, _TOKENS = 32, 64, 4, 64
_ROUNDS, _CHANGES, _QUICK_CHANGES = 5, 50, 3
#: controllers in the store of a replica that starts
_MODULES, _QUICK_MODULES = 1000, 5
_SCRIPT = 'from aici import *\nasync def main():\n    await force("{}")\n'


def run(report: Report) -> None:
    """Measures replicas with the default model on llama.cpp; each has a processor of its own."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        shared = ("--shared-store", str(folder / "shared"), "--anonymous", "upload", "--threads", "1")
        clients = []
        for number in (0, 1):
            with _on_processor(number):
                address = stack.enter_context(serving(*shared, "--store", str(folder / f"store{number}")))
            clients.append(stack.enter_context(RestClient(address)))
        _throughput(report, clients)
        _visible(report, clients)
        _restart(report, clients[0], folder, shared)
        if shutil.which("docker-registry") is None:
            report.omissions["scale.pull_s"] = "there is no docker-registry: scripts/servers.sh fetches it"
        else:
            _pull(report, folder)


@contextlib.contextmanager
def _on_processor(number: int) -> Iterator[None]:
    """Has processes that start inside the block use one processor, if there are several."""
    usual = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {usual[number % len(usual)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, usual)


def _throughput(report: Report, clients: list[RestClient]) -> None:
    """Reports how many times as many requests two replicas answer in the same time."""
    total = _QUICK_REQUESTS if report.quick else _REQUESTS
    numbers = itertools.count()

    def ask(client: RestClient) -> None:
        prompt = f"Story {next(numbers)}."
        client.run_to_end(
            controller="regex", controller_arg="[A-Za-z ,.]+", prompt=prompt, max_tokens=_TOKENS
        )

    def answer(replicas: list[RestClient]) -> Callable[[], None]:
        def work() -> None:
            turns = itertools.islice(itertools.cycle(replicas), total)
            with ThreadPoolExecutor(_CLIENTS) as pool:
                list(pool.map(ask, turns))

        return work

    rounds = 1 if report.quick else _ROUNDS
    seconds = alternate({"one": answer(clients[:1]), "two": answer(clients)}, rounds)
    for name, samples in seconds.items():
        report.samples(f"scale.{name}_s", samples, "s")
    ratio = summarise(seconds["one"]).median / summarise(seconds["two"]).median
    report.figure("scale.requests_ratio.2", ratio, "x")
    report.details["scale.requests_ratio.2"] = {"at least": RATIO_TARGET}


def _visible(report: Report, clients: list[RestClient]) -> None:
    """Reports the time from an upload and a change of a tag at one replica until the other one runs it.

    Both have compiled the interpreter before.
    """
    first, second = clients
    _until(second, first.upload_script("python", _SCRIPT.format("first"), "a.py")["id"], "first")
    samples: dict[str, list[float]] = {"upload": [], "tag": []}
    for number in range(_QUICK_CHANGES if report.quick else _CHANGES):
        text = f"text {number}"
        id = first.upload_script("python", _SCRIPT.format(text), "a.py")["id"]
        samples["upload"].append(_until(second, id, text))
        first.tag(id, "moving")
        samples["tag"].append(_until(second, "moving", text))
    for name, values in samples.items():
        report.samples(f"scale.{name}_visible_ms", values, "ms")
        target = VISIBLE_TARGET if name == "upload" else None
        report.figure(f"scale.{name}_visible_ms", percentile(values, 99), "ms", target=target)


def _until(client: RestClient, name: str, text: str) -> float:
    """Returns the milliseconds until the replica answers with the text, which the engine needs, too."""
    start = time.perf_counter()
    while True:
        with contextlib.suppress(ServerError):
            if client.run_to_end(controller=name, prompt="")["forks"][0]["text"] == text:
                return 1000 * (time.perf_counter() - start)


def _restart(report: Report, client: RestClient, folder: Path, shared: tuple[str, ...]) -> None:
    """Reports the time from the start of a replica until it has run a controller of a full store.

    First it is a new one, which has nothing compiled; then it starts again.
    """
    ids = [
        client.upload_script("python", _SCRIPT.format(f"module {number}"), "a.py")["id"]
        for number in range(_QUICK_MODULES if report.quick else _MODULES)
    ]
    for name, target in (("start", None), ("restart", RESTART_TARGET)):
        start = time.perf_counter()
        with serving(*shared, "--store", str(folder / "new")) as address, RestClient(address) as new:
            _until(new, ids[-1], f"module {len(ids) - 1}")
            report.figure(f"scale.{name}_s", time.perf_counter() - start, "s", target=target)


def _pull(report: Report, folder: Path) -> None:
    """Reports the time of a pull from a registry on this machine, with all checks."""
    from pyaici.artifacts import Reference, pull, push  # its packages are optional

    (folder / "registry").mkdir()
    with running_registry(folder / "registry") as address:
        module = find_controller("regex")
        push(Reference.parse(f"{address}/team/regex:1"), module)
        start = time.perf_counter()
        artifact = pull(Reference.parse(f"{address}/team/regex:1"), (), 1 << 24)
        report.figure("scale.pull_s", time.perf_counter() - start, "s", target=PULL_TARGET)
        assert artifact.content == module.read_bytes()
