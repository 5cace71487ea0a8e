"""The key-value caches: a fork in llama.cpp's, and the memory of idle servers after mixed requests."""

from __future__ import annotations

import threading
import time

import httpx2

from lab.measurement.memory import resident_kib
from lab.measurement.timing import summarise
from lab.report import Report
from lab.servers.server_process import server_process
from pyaici import LlamaModel, load_library
from pyaici.engines.batching.model import Feed
from pyaici.engines.llama.runner import LlamaRunner
from pyaici.models import default_gguf_path

_FORK_TOKENS, _FORKS = 1000, 200
_QUICK_FORK_TOKENS = 50
#: clients at the same time, requests of each, and words of the long prompt, whose text has about 6 000 tokens
_CLIENTS, _REQUESTS, _LONG_WORDS = 8, 16, 1180
_QUICK_FORKS, _QUICK_CLIENTS, _QUICK_REQUESTS, _QUICK_LONG_WORDS = 3, 2, 1, 10
#: memory of an idle server after all requests, divided by its memory after the first one
_RATIO = 1.5
#: the engine frees sequences in the step after the last answer
_SETTLE_SECONDS = 1.0


def run(report: Report) -> None:
    """Measures both engines. Memory is the resident set of the server's process, without its workers."""
    _fork(report)
    for engine in ("llama", "hf"):
        _idle(report, engine)


def _fork(report: Report) -> None:
    """Measures forks of a sequence of 1000 tokens, each of which is freed before the next."""
    count = _QUICK_FORKS if report.quick else _FORKS
    tokens = _QUICK_FORK_TOKENS if report.quick else _FORK_TOKENS
    with LlamaModel(load_library(), default_gguf_path()) as model:
        runner = LlamaRunner(model, 2 * tokens + 1024)
        parent = runner.cache.new_slot()
        runner.run([Feed(parent, [i % 1000 for i in range(tokens)])])
        samples = []
        for _ in range(count):
            start = time.perf_counter()
            child = runner.cache.fork(parent)
            samples.append(1e6 * (time.perf_counter() - start))
            runner.cache.free(child)
        runner.close()
    report.samples("fork.llama_us", samples, "us")
    report.figure("fork.llama_us", summarise(samples).median, "us")
    report.figure("fork.llama_p99_us", summarise(samples).p99, "us")


def _idle(report: Report, engine: str) -> None:
    requests = _QUICK_REQUESTS if report.quick else _REQUESTS
    with server_process("--engine", engine) as server, httpx2.Client(timeout=1800) as http:

        def generate(prompt: str, tokens: int) -> None:
            body = {"prompt": prompt, "max_tokens": tokens}
            http.post(f"{server.address}/v1/completions", json=body).raise_for_status()

        def client(number: int) -> None:
            for turn in range(requests):
                generate(f"Client {number}, {turn}:" + " word" * (5 * turn + number), 8 + 4 * number)

        generate("Hello", 16)
        first = resident_kib(server.pid)
        clients = [
            threading.Thread(target=client, args=(number,))
            for number in range(_QUICK_CLIENTS if report.quick else _CLIENTS)
        ]
        for thread in clients:
            thread.start()
        generate("the long story of one " * (_QUICK_LONG_WORDS if report.quick else _LONG_WORDS), 8)
        for thread in clients:
            thread.join()
        time.sleep(_SETTLE_SECONDS)
        idle = resident_kib(server.pid)
    report.figure(f"{engine}.first_mb", first / 1024, "MiB")
    report.figure(f"{engine}.idle_mb", idle / 1024, "MiB")
    report.figure(f"{engine}.idle_ratio", idle / first, "ratio", target=_RATIO)
