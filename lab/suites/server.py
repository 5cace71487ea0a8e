"""Tokens per second and time to the first token: `aici serve`, the bare engine, llama.cpp's own server."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httpx2

from lab.measurement.timing import alternate, summarise
from lab.report import Report
from lab.servers.llama_cpp import llama_cpp_server
from lab.servers.server_process import serving
from pyaici import LlamaEngine, LlamaModel, load_library
from pyaici.bundled import bundled_controllers
from pyaici.client.runtime import Runtime
from pyaici.engines.engine import Request, TokensAppended
from pyaici.models import default_gguf_path

#: requests at the same time
_BATCHES = (1, 8)
_TOKENS, _QUICK_TOKENS = 64, 3
_ROUNDS, _QUICK_ROUNDS = 10, 1
_MAX_TEXT = 512
_PROMPT = "Client number {}: once upon a time there was a"
#: an answer has more tokens than a request
_SCHEMA = {
    "type": "array",
    "minItems": 16,
    "items": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "alive": {"type": "boolean"}},
        "required": ["name", "age", "alive"],
        "additionalProperties": False,
    },
}
#: lowest ratio of tokens per second: to the engine without a server, and to llama.cpp's server
_TARGETS = {"bare": 0.9, "llama_cpp": 0.95}


@dataclass
class _Times:
    """Times of a batch: seconds to the first token of each request, and tokens per second of all together."""

    first: list[float] = field(default_factory=list)
    rate: float = 0.0


def run(report: Report) -> None:
    """Generates with the three in turn, greedily, with one thread for the model and no cache of prompts.

    Then compares both servers with the numbers of threads that they take themselves.
    """
    path = default_gguf_path()
    with (
        LlamaModel(load_library(), path) as model,
        Runtime() as runtime,
        LlamaEngine(model, runtime) as engine,
        serving("--model", str(path), "--keep-prompts", "0", "--threads", "1") as server,
        llama_cpp_server(path, max(_BATCHES), _MAX_TEXT) as peer,
    ):
        module = runtime.upload(bundled_controllers()["json_schema"]).id
        for batch in _BATCHES:
            for name, schema in (("free", False), ("schema", True)):
                contestants = {
                    "bare": partial(_bare, engine, module if schema else None),
                    "server": partial(_served, server, schema),
                    "llama_cpp": partial(_served, peer, schema),
                }
                rates, found = _alternated(report, contestants, batch)
                _report(report, f"server.b{batch}.{name}", rates, found)
    with (
        serving("--model", str(path), "--keep-prompts", "0") as server,
        llama_cpp_server(path, max(_BATCHES), _MAX_TEXT, 0) as peer,
    ):
        for batch in _BATCHES:
            both = {"server": partial(_served, server, False), "llama_cpp": partial(_served, peer, False)}
            rates, _ = _alternated(report, both, batch)
            pairs = zip(rates["server"], rates["llama_cpp"], strict=True)
            ratios = [ours / theirs for ours, theirs in pairs]
            name = f"server.b{batch}.default_threads.ratio_to_llama_cpp"
            report.figure(name, summarise(ratios).median, "ratio")


def _alternated(
    report: Report, contestants: dict[str, Callable[[int, int], _Times]], batch: int
) -> tuple[dict[str, list[float]], dict[str, list[_Times]]]:
    """Lets contestants answer in turn; returns their tokens per second, and their times without the first."""
    count = _QUICK_TOKENS if report.quick else _TOKENS
    found: dict[str, list[_Times]] = {who: [] for who in contestants}

    def timed(who: str) -> float:
        found[who].append(contestants[who](batch, count))
        return found[who][-1].rate

    rounds = _QUICK_ROUNDS if report.quick else _ROUNDS
    rates = alternate({who: partial(timed, who) for who in contestants}, rounds)
    return rates, {who: times[1:] for who, times in found.items()}


def _report(report: Report, name: str, rates: dict[str, list[float]], found: dict[str, list[_Times]]) -> None:
    for who, values in rates.items():
        report.figure(f"{name}.{who}_tokens_per_s", summarise(values).median, "tokens/s")
    for peer, target in _TARGETS.items():
        ratios = [served / other for served, other in zip(rates["server"], rates[peer], strict=True)]
        report.figure(f"{name}.ratio_to_{peer}", summarise(ratios).median, "ratio", target=target)
    for who, batches in found.items():
        first = [1000 * seconds for times in batches for seconds in times.first]
        report.samples(f"{name}.{who}.first_token", first, "ms")
        report.figure(f"{name}.{who}_first_token_ms", summarise(first).median, "ms")
        report.figure(f"{name}.{who}_first_token_p99_ms", summarise(first).p99, "ms")


def _bare(engine: LlamaEngine, module: str | None, batch: int, count: int) -> _Times:
    start = time.perf_counter()
    times = _Times()
    seen: set[int] = set()
    for number in range(batch):
        arg = json.dumps(_SCHEMA) if module else ""
        engine.add(Request(_PROMPT.format(number), controller=module, arg=arg, max_tokens=count))
    tokens = 0
    while engine.busy:
        for event in engine.step():
            if isinstance(event, TokensAppended):
                tokens += len(event.tokens)
                if event.request not in seen:
                    seen.add(event.request)
                    times.first.append(time.perf_counter() - start)
    for number in seen:
        engine.results(number)
    times.rate = tokens / (time.perf_counter() - start)
    return times


def _served(url: str, schema: bool, batch: int, count: int) -> _Times:
    """Sends the requests to a server with OpenAI's API."""
    times, tokens = _Times(), [0] * batch
    lock = threading.Lock()

    def client(number: int, http: httpx2.Client) -> None:
        body: dict[str, Any] = {
            "prompt": _PROMPT.format(number),
            "max_tokens": count,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if schema:
            body["json_schema"] = _SCHEMA
        first = True
        with http.stream("POST", f"{url}/v1/completions", json=body) as answer:
            answer.raise_for_status()
            for line in answer.iter_lines():
                if not line.startswith("data: {"):
                    continue
                if first:
                    first = False
                    with lock:
                        times.first.append(time.perf_counter() - start)
                chunk = json.loads(line[6:])
                tokens[number] = (chunk.get("usage") or {}).get("completion_tokens", 0)

    with contextlib.ExitStack() as stack:
        # connects before the measurement: creating a client takes longer than an answer of the server, even
        # without the certificates, which plain HTTP does not need
        clients = [stack.enter_context(httpx2.Client(timeout=600, verify=False)) for _ in range(batch)]
        for http in clients:
            http.get(f"{url}/health").raise_for_status()
        threads = [threading.Thread(target=client, args=pair) for pair in enumerate(clients)]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    times.rate = sum(tokens) / (time.perf_counter() - start)
    return times
