"""Time to the first token and tokens per second through the HTTP server, compared with the bare engine."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import httpx2
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from bench.measurement.timing import alternate, summarise
from bench.report import Report
from bench.servers.server_process import serving
from pyaici.bundled import bundled_controllers
from pyaici.client.runtime import Runtime
from pyaici.engines.engine import TokensAppended
from pyaici.engines.hf import HfEngine, Request
from pyaici.models import default_model_path

#: requests at the same time
_BATCHES = (1, 8)
_TOKENS, _QUICK_TOKENS = 48, 3
_ROUNDS, _QUICK_ROUNDS = 10, 1
#: allows any text, so that the tokens are the same as without control
_PATTERN = "(?s).*"
_PROMPT = "Client number {}: once upon a time there was a"


@dataclass
class _Times:
    """Times of a batch: seconds to the first token of each request, and tokens per second of all together."""

    first: list[float] = field(default_factory=list)
    rate: float = 0.0


def run(report: Report) -> None:
    """Generates the same tokens with the server and the bare engine in turn, without a cache of prompts."""
    torch.set_num_threads(1)
    folder = default_model_path()
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    count = _QUICK_TOKENS if report.quick else _TOKENS
    rounds = _QUICK_ROUNDS if report.quick else _ROUNDS
    with (
        Runtime() as runtime,
        HfEngine(model.eval(), tokenizer, runtime) as engine,
        serving("--keep-prompts", "0") as url,
    ):
        module = runtime.upload(bundled_controllers()["regex"]).id
        for batch in _BATCHES:
            for name, controlled in (("free", False), ("regex", True)):
                found: dict[str, list[_Times]] = {"bare": [], "server": []}

                def bare(found: Any = found, batch: int = batch, controlled: bool = controlled) -> float:
                    times = _bare(engine, module if controlled else None, batch, count)
                    found["bare"].append(times)
                    return times.rate

                def server(found: Any = found, batch: int = batch, controlled: bool = controlled) -> float:
                    times = _served(url, controlled, batch, count)
                    found["server"].append(times)
                    return times.rate

                rates = alternate({"bare": bare, "server": server}, rounds)
                _report(report, f"server.b{batch}.{name}", rates, {k: v[1:] for k, v in found.items()})


def _report(report: Report, name: str, rates: dict[str, list[float]], found: dict[str, list[_Times]]) -> None:
    ratios = [served / bare for served, bare in zip(rates["server"], rates["bare"], strict=True)]
    report.figure(f"{name}.tokens_per_s", summarise(rates["server"]).median, "tokens/s")
    report.figure(f"{name}.bare_tokens_per_s", summarise(rates["bare"]).median, "tokens/s")
    report.figure(f"{name}.rate_ratio", summarise(ratios).median, "ratio")
    first = {
        who: [1000 * seconds for times in all_times for seconds in times.first]
        for who, all_times in found.items()
    }
    summary = {who: summarise(values) for who, values in first.items()}
    report.figure(f"{name}.first_token_ms", summary["server"].median, "ms")
    report.figure(f"{name}.first_token_p99_ms", summary["server"].p99, "ms")
    report.figure(f"{name}.bare_first_token_ms", summary["bare"].median, "ms")
    report.figure(f"{name}.first_token_added_ms", summary["server"].median - summary["bare"].median, "ms")
    for who, values in first.items():
        report.samples(f"{name}.{who}.first_token", values, "ms")


def _bare(engine: HfEngine, module: str | None, batch: int, count: int) -> _Times:
    start = time.perf_counter()
    times = _Times()
    seen: set[int] = set()
    for number in range(batch):
        engine.add(
            Request(_PROMPT.format(number), module=module, arg=_PATTERN if module else "", max_tokens=count)
        )
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


def _served(url: str, controlled: bool, batch: int, count: int) -> _Times:
    times, tokens = _Times(), [0] * batch
    lock = threading.Lock()

    def client(number: int, http: httpx2.Client) -> None:
        body: dict[str, Any] = {"prompt": _PROMPT.format(number), "max_tokens": count}
        if controlled:
            body |= {"controller": "regex", "controller_arg": _PATTERN}
        first = True
        with http.stream("POST", f"{url}/v1/run", json=body) as answer:
            answer.raise_for_status()
            for line in answer.iter_lines():
                if not line.startswith("data: {"):
                    continue
                event = json.loads(line[6:])
                if event["object"] == "run" and event["usage"]["completion_tokens"] and first:
                    first = False
                    with lock:
                        times.first.append(time.perf_counter() - start)
                tokens[number] = event.get("usage", {}).get("completion_tokens", 0)

    with contextlib.ExitStack() as stack:
        # connects before the measurement: creating a client takes longer than an answer of the server
        clients = [stack.enter_context(httpx2.Client(timeout=600)) for _ in range(batch)]
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
