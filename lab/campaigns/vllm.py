"""Mixed requests to vLLM's server, free and with controllers: no errors of good ones, no growth.

Clients send requests one after the other: free ones, whose texts must be those of an idle server; requests
with controllers, whose texts must match; and bad ones, with wrong arguments or clients that hang up.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai

from lab.campaigns.campaign import Campaign
from lab.campaigns.memory import MemoryWatch, proportional, resident
from lab.measurement.timing import percentile
from lab.vllm.engines import ENVIRONMENT
from lab.vllm.server import MODEL, Server
from lab.vllm.shallow_model import make_shallow_model
from lab.vllm.streams import PrivateRuntime

_SECONDS = 120.0
_CLIENTS = 8
#: seconds that the controllers of ended requests have to end
_END_SECONDS = 30.0
#: growth of all processes together from the second to the last quarter of the time, MiB. The first quarter is
#: left out because caches fill in it
_MAX_GROWTH = 48.0

PROMPTS = [f"{start} {number} is" for number in (1, 2, 3) for start in ("Rule", "Tip", "Step", "Day")]
WORDS = "( [a-z]+)+"
YEAR = "(19|20)[0-9][0-9]\\."
NAME = {"type": "object", "properties": {"name": {"enum": ["Ann", "Bob"]}}, "required": ["name"]}
SCHEMA = json.dumps({**NAME, "additionalProperties": False})


@dataclass(frozen=True)
class Kind:
    """A kind of request."""

    #: how often it occurs, relative to the others
    weight: int
    #: sends a request and returns what is wrong with the answer, or None
    send: Callable[[Clients, random.Random], str | None]


class Clients:
    """Sends requests to a server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        #: the greedy texts after `PROMPTS` of an idle server
        self.texts = {prompt: self.text(prompt, {}, max_tokens=32) for prompt in PROMPTS}

    def text(self, prompt: str, extra: dict[str, Any], *, stream: bool = False, **options: Any) -> str:
        """Returns the text of a completion."""
        answer: Any = self.completion(prompt, extra, stream=stream, **options)
        return "".join(chunk.choices[0].text for chunk in answer) if stream else str(answer.choices[0].text)

    def completion(self, prompt: str, extra: dict[str, Any], **options: Any) -> Any:
        """Returns the answer of vLLM's API, greedy by default."""
        settings = {"temperature": 0, **options}
        return self._server.client.completions.create(
            model=MODEL, prompt=prompt, extra_body=extra, **settings
        )


def controlled(controller: str, arg: str, **more: Any) -> dict[str, Any]:
    """Returns the members of a request that name a controller."""
    return {"vllm_xargs": {"aici_controller": controller, "aici_arg": arg, **more}}


def _free(clients: Clients, rng: random.Random) -> str | None:
    prompt = rng.choice(PROMPTS)
    text = clients.text(prompt, {}, max_tokens=32, stream=rng.random() < 0.5)
    return None if text == clients.texts[prompt] else f"{text!r} instead of {clients.texts[prompt]!r}"


def _regex(clients: Clients, rng: random.Random) -> str | None:
    # half of the patterns are new
    pattern = YEAR if rng.random() < 0.5 else f"{YEAR} [a-z]{{1,{rng.randrange(2, 1000)}}}\\."
    text = clients.text(
        rng.choice(PROMPTS), controlled("regex", pattern), max_tokens=24, stream=rng.random() < 0.5
    )
    good = re.fullmatch(pattern, text) if pattern == YEAR else re.match(f"{YEAR}( [a-z]*|$)", text)
    return None if good else f"{text!r} does not match {pattern}"


def _held(clients: Clients, rng: random.Random) -> str | None:
    text = clients.text(rng.choice(PROMPTS), controlled("regex", YEAR, aici_hold=1), max_tokens=24)
    return None if re.fullmatch(YEAR, text) else f"{text!r} does not match {YEAR}"


def _schema(clients: Clients, rng: random.Random) -> str | None:
    text = clients.text(rng.choice(PROMPTS), controlled("json_schema", SCHEMA), max_tokens=40)
    return None if json.loads(text)["name"] in ("Ann", "Bob") else f"wrong JSON: {text!r}"


def _forks(clients: Clients, rng: random.Random) -> str | None:
    extra = {"top_k": 1, **controlled("showcase", "", aici_fork=1, aici_hold=1)}
    answer = clients.completion("Once upon a time", extra, n=4, temperature=1, max_tokens=60)
    texts = {choice.text for choice in answer.choices}
    good = len(texts) == 4 and all(text.startswith("Once upon a time, far") for text in texts - {""})
    return None if good else f"wrong choices: {texts}"


def _wrong(clients: Clients, rng: random.Random) -> str | None:
    with contextlib.suppress(openai.BadRequestError):
        return f"not refused: {clients.text('a', controlled('regex', '[a-'), max_tokens=4)!r}"
    return None


def _hang_up(clients: Clients, rng: random.Random) -> str | None:
    """Closes a stream after some chunks, in the middle of a step of its controller."""
    extra = controlled("regex", WORDS) if rng.random() < 0.7 else {"ignore_eos": True}
    with clients.completion(rng.choice(PROMPTS), extra, max_tokens=400, stream=True) as chunks:
        for _ in zip(range(rng.randrange(12)), chunks, strict=False):
            pass
    return None


KINDS = {
    "free": Kind(6, _free),
    "regex": Kind(4, _regex),
    "held": Kind(1, _held),
    "schema": Kind(2, _schema),
    "forks": Kind(1, _forks),
    "wrong": Kind(1, _wrong),
    "hang_up": Kind(2, _hang_up),
}


def run(campaign: Campaign) -> None:
    """Runs the campaign. A case is a request. It fails if it has an error, or another text than expected."""
    os.environ.update(ENVIRONMENT)
    if campaign.seconds is None and campaign.count is None:
        campaign.seconds = _SECONDS
    with tempfile.TemporaryDirectory() as folder:
        server = Server(make_shallow_model(Path(folder) / "model"), Path(folder) / "log")
        try:
            server.wait_until_ready()
            clients = Clients(server)
            for kind in KINDS.values():  # loads the controllers
                kind.send(clients, random.Random(0))
            runtime = PrivateRuntime(server)
            campaign.begun = time.monotonic()
            kinds = {server.process.pid: "server", runtime.engine: "engine", runtime.pid: "aicirt"}
            measures = (resident, proportional)
            watches = [MemoryWatch(server.process.pid, kinds, measure, 1.0) for measure in measures]
            with watches[0], watches[1]:
                _load(campaign, clients)
            _report_memory(campaign, *watches)
            _await_no_controllers(campaign, runtime)
        finally:
            _close(campaign, server)


def _load(campaign: Campaign, clients: Clients) -> None:
    """Sends requests from several threads until the campaign is over."""
    cases, lock = campaign.cases(), threading.Lock()
    times: list[float] = []
    innocent = 0

    def work() -> None:
        nonlocal innocent
        while True:
            with lock:
                case = next(cases, None)
            if case is None:
                return
            rng = campaign.random(case)
            (name,) = rng.choices(list(KINDS), [kind.weight for kind in KINDS.values()])
            began = time.monotonic()
            try:
                problem = KINDS[name].send(clients, rng)
            except Exception as error:
                problem = repr(error)
            with lock:
                times.append(time.monotonic() - began)
                campaign.ended(name)
                if problem is not None:
                    innocent += 1
                    campaign.failed(case, f"{name}: {problem}")

    threads = [threading.Thread(target=work) for _ in range(_CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, count in sorted(campaign.outcomes.items()):
        campaign.figure(f"requests.{name}", count, "requests")
    campaign.figure("requests", campaign.done, "requests")
    campaign.figure("request_p50", percentile(times, 50), "s")
    campaign.figure("request_p99", percentile(times, 99), "s")
    campaign.figure("request_max", max(times, default=0.0), "s")
    campaign.figure("innocent_errors", innocent, "errors", target=0)


def _report_memory(campaign: Campaign, rss: MemoryWatch, pss: MemoryWatch) -> None:
    for name, watch in (("rss", rss), ("pss", pss)):
        for kind, values in watch.by_kind.items():
            quarter = max(1, len(values) // 4)
            first, last = (
                percentile(part, 50) for part in (values[quarter : 2 * quarter], values[-quarter:])
            )
            target = _MAX_GROWTH if kind == "all" else None
            campaign.figure(f"{kind}.{name}", last, "MiB")
            campaign.figure(f"{kind}.{name}_growth", last - first, "MiB", target=target)
            if target is not None and last - first > target:
                campaign.failed(-1, f"the processes have grown by {last - first:.0f} MiB ({name})")


def _await_no_controllers(campaign: Campaign, runtime: PrivateRuntime) -> None:
    deadline = time.monotonic() + _END_SECONDS
    while (left := runtime.sequences()) and time.monotonic() < deadline:
        time.sleep(0.1)
    campaign.figure("sequences_left", left, "controllers", target=0)
    if left:
        campaign.failed(-1, f"{left} controllers of ended requests are still running")


def _close(campaign: Campaign, server: Server) -> None:
    """Ends the server, and looks for what it has left behind and for errors in its log."""
    try:
        server.close()
    except AssertionError as error:
        campaign.failed(-1, str(error))
    log = server.log.read_text(errors="replace")
    tracebacks = log.count("Traceback")
    campaign.figure("tracebacks", tracebacks, "tracebacks", target=0)
    if tracebacks:
        campaign.failed(-1, f"the server's log has {tracebacks} tracebacks", log.encode(), ".log")
