"""Two well-behaved users: one with scripts, one with regular expressions. Whatever they get is checked."""

from __future__ import annotations

import http.client
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bench.campaigns.tenancy.client import Client, RefusedError

_SCRIPT = """\
from aici import argument, fixed, gen
async def main():
    for number in range(argument):
        await fixed(f"\\n{number}: ")
        await gen(regex="[0-9]{3}")
"""
#: requests with the same argument; the next one has another, which is compiled and read anew
_SAME = 4
#: more than any answer has
_MAX_TOKENS = 600


def script_request(number: int) -> tuple[dict[str, Any], str]:
    """A script with an argument, and the pattern that its text must match."""
    lines = 12 + number // _SAME % 50
    script = {"language": "python", "source": _SCRIPT, "arg": lines}
    body = {"script": script, "prompt": f"Some numbers, list {number}:", "max_tokens": _MAX_TOKENS}
    return body, "".join(f"\n{line}: [0-9]{{3}}" for line in range(lines))


def regex_request(number: int) -> tuple[dict[str, Any], str]:
    """A regular expression, and itself."""
    pattern = f"( [a-z]{{2,7}}){{{10 + number // _SAME % 50}}}, [0-9]{{4}}"
    call = {"controller": "regex", "controller_arg": pattern}
    return {**call, "prompt": f"A sentence, number {number}:", "max_tokens": _MAX_TOKENS}, pattern


@dataclass
class Victim:
    """Sends one request after the other, each of them streamed, while it is told to."""

    name: str
    client: Client
    request: Callable[[int], tuple[dict[str, Any], str]]
    requests: int = 0
    #: what went wrong, with the number of the request
    errors: list[str] = field(default_factory=list)
    #: milliseconds between two events with text, and from a request to its first
    gaps: list[float] = field(default_factory=list)
    firsts: list[float] = field(default_factory=list)

    def forget(self) -> None:
        """Begins new samples."""
        self.gaps, self.firsts = [], []

    def work(self, stop: threading.Event) -> None:
        """Until `stop`; the last request is finished."""
        while not stop.is_set():
            self.ask()

    def ask(self) -> None:
        """One request."""
        body, pattern = self.request(self.requests)
        number, self.requests = self.requests, self.requests + 1
        try:
            problem = self._run(body, pattern)
        except (OSError, http.client.HTTPException, ValueError, KeyError, RefusedError) as error:
            problem = f"{type(error).__name__}: {error}"
        if problem:
            self.errors.append(f"{self.name}'s request {number}: {problem}")

    def _run(self, body: dict[str, Any], pattern: str) -> str:
        """What is wrong with the answer; empty if nothing is."""
        told: float | None = None
        begun = time.perf_counter()
        end: dict[str, Any] | None = None
        done = False
        for event in self.client.events("/v1/run", {**body, "stream": True}):
            now = time.perf_counter()
            kind = event.get("object")
            if not event:
                done = True
            elif kind == "run.end":
                end = event
            elif kind == "error":
                return f"an error event: {event['error']}"
            elif kind == "run" and any(fork["text"] for fork in event["forks"]):
                (self.firsts if told is None else self.gaps).append((now - (told or begun)) * 1e3)
                told = now
        if end is None or not done:
            return "the stream ended early"
        (fork,) = end["forks"]
        if fork["finish_reason"] != "stop":
            return f"it ended with {fork['finish_reason']} {fork['error']}"
        if not re.fullmatch(pattern, fork["text"]):
            return f"{fork['text']!r} does not match {pattern!r}"
        return ""
