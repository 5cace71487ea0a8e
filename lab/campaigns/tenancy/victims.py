"""Two well-behaved users, one with scripts and one with regular expressions. They check every answer."""

from __future__ import annotations

import http.client
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lab.campaigns.tenancy.client import Client, RefusedError

_SCRIPT = """\
from aici import arg, force, gen
async def main():
    for number in range(arg):
        await force(f"\\n{number}: ")
        await gen(regex="[0-9]{3}")
"""
#: requests with the same argument, before a new one that must be compiled and read
_SAME = 4
#: more than any answer needs
_MAX_TOKENS = 600


def script_request(number: int) -> tuple[dict[str, Any], str]:
    """Returns a request for a script, and the pattern that its text must match."""
    lines = 12 + number // _SAME % 50
    script = {"language": "python", "source": _SCRIPT, "arg": lines}
    body = {"script": script, "prompt": f"Some numbers, list {number}:", "max_tokens": _MAX_TOKENS}
    return body, "".join(f"\n{line}: [0-9]{{3}}" for line in range(lines))


def regex_request(number: int) -> tuple[dict[str, Any], str]:
    """Returns a request with a regular expression, and this expression."""
    pattern = f"( [a-z]{{2,7}}){{{10 + number // _SAME % 50}}}, [0-9]{{4}}"
    call = {"controller": "regex", "controller_arg": pattern}
    return {**call, "prompt": f"A sentence, number {number}:", "max_tokens": _MAX_TOKENS}, pattern


@dataclass
class Victim:
    """Sends one streamed request after the other."""

    name: str
    client: Client
    request: Callable[[int], tuple[dict[str, Any], str]]
    requests: int = 0
    #: problems, with the number of the request
    errors: list[str] = field(default_factory=list)
    #: milliseconds between two events with text
    gaps: list[float] = field(default_factory=list)
    #: milliseconds from a request to its first event with text
    firsts: list[float] = field(default_factory=list)

    def forget(self) -> None:
        """Drops the samples so far."""
        self.gaps, self.firsts = [], []

    def work(self, stop: threading.Event) -> None:
        """Sends requests until `stop` is set, and finishes the last one."""
        while not stop.is_set():
            self.ask()

    def ask(self) -> None:
        """Sends a request and checks the answer."""
        body, pattern = self.request(self.requests)
        number, self.requests = self.requests, self.requests + 1
        try:
            problem = self._run(body, pattern)
        except (OSError, http.client.HTTPException, ValueError, KeyError, RefusedError) as error:
            problem = f"{type(error).__name__}: {error}"
        if problem:
            self.errors.append(f"{self.name}'s request {number}: {problem}")

    def _run(self, body: dict[str, Any], pattern: str) -> str:
        """Returns what is wrong with the answer, or an empty text."""
        last: float | None = None
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
                (self.firsts if last is None else self.gaps).append((now - (last or begun)) * 1e3)
                last = now
        if end is None or not done:
            return "the stream ended early"
        (fork,) = end["forks"]
        if fork["finish_reason"] != "stop":
            return f"it ended with {fork['finish_reason']} {fork['error']}"
        if not re.fullmatch(pattern, fork["text"]):
            return f"{fork['text']!r} does not match {pattern!r}"
        return ""
