"""Converts the stream of `POST /v1/run` into engine events, and results of an engine into its answer.

So remote runs look like local ones, in a terminal, as JSON and in evaluations. The server uses what both have
in common.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aicirt.contract.errors import AiciError, error_from_wire
from pyaici.client.arguments import value_bytes, value_json
from pyaici.engines.engine import (
    Backtracked,
    Counts,
    Event,
    Finished,
    FinishReason,
    Forked,
    GenerationResult,
    Log,
    Origin,
    Request,
    Started,
    Suspended,
    TokensAppended,
    VariablesChanged,
    Written,
)


def result_json(results: Sequence[GenerationResult]) -> dict[str, Any]:
    """Returns what `POST /v1/run` answers, as JSON values, for the results of one request on this machine."""
    numbers = {result.seq: number for number, result in enumerate(results)}
    kinds = "sampled", "forced", "backtracked"
    counts = (sum(getattr(result, kind) for result in results) for kind in kinds)
    usage = usage_json(len(results[0].prompt), *counts)
    answer = {"object": "run.result", **end_json(results, usage, numbers.get, lambda error: error.message)}
    return {**answer, "forks": list(answer["forks"])}


def usage_json(prompt: int, sampled: int, forced: int, backtracked: int) -> dict[str, int]:
    """Returns numbers of tokens as `POST /v1/run` reports them."""
    return {
        "prompt_tokens": prompt,
        "sampled_tokens": sampled,
        "forced_tokens": forced,
        "backtracked_tokens": backtracked,
        "completion_tokens": sampled + forced - backtracked,
    }


def end_json(
    results: Sequence[GenerationResult],
    usage: dict[str, int],
    index: Callable[[int], int | None],
    message: Callable[[AiciError], str],
) -> dict[str, Any]:
    """Returns how all forks have ended. "forks" is an iterator: a request may have a thousand.

    `index`: returns the number of a fork by that of its sequence; None for an unknown parent. `message`:
    returns what the user learns of an error.
    """

    def ended_fork(result: GenerationResult) -> dict[str, Any]:
        return {
            "index": index(result.seq),
            "parent": None if result.parent is None else index(result.parent),
            "text": result.text,
            "finish_reason": result.finish_reason.value,
            "error": result.error and {"code": result.error.code, "message": message(result.error)},
            "log": result.log,
        }

    # the results of one request have the same variables
    runs = {result.request: result.variables for result in results}.values()
    first = min((result.first_token_seconds for result in results), default=math.nan)
    seconds = max((result.seconds for result in results), default=math.nan)
    return {
        "forks": map(ended_fork, results),
        "variables": {name: value_json(value) for known in runs for name, value in known.items()},
        "usage": usage,
        "timing": {"first_token_s": finite(first), "seconds": finite(seconds)},
    }


def finite(value: float) -> float | None:
    """Returns a number that JSON has: None for NaN and infinity."""
    return value if math.isfinite(value) else None


@dataclass
class RunCounts(Counts):
    """Counts of a run at a server, which measures controllers if the request has `details`."""

    control_seconds: float | None = None

    @property
    def last_control_seconds(self) -> float | None:
        """See `Counts.last_control_seconds`."""
        return self.control_seconds


class RestEvents:
    """Converts the objects that `RestClient.run` yields, in order. Sequences are numbered by fork index.

    The events of a sequence are in the order in which they happened. In one step, the events of all
    sequences come one sequence after the other, parents before their forks. A controller's output in a step
    is one event.
    """

    def __init__(self, request: int = 0) -> None:
        """`request`: the number of the request in the events."""
        self._request = request
        #: counts so far
        self.counts = RunCounts()
        #: the last object of the stream, once received: how all forks ended, and times
        self.end: Mapping[str, Any] | None = None

    def convert_item(self, item: Mapping[str, Any]) -> list[Event]:
        """Returns the events of an object of the stream, oldest first.

        The first and the last object of the stream give no events.
        """
        if item["object"] == "run.end":
            self.end = item
        if item["object"] != "run":
            return []
        self._count_step(item)
        children: dict[int, list[dict[str, Any]]] = {}
        for fork in item["forks"]:
            if "parent" in fork:
                children.setdefault(fork["parent"], []).append(fork)
        events: list[Event] = []
        for fork in item["forks"]:
            if "parent" not in fork:
                self._follow(fork, children, events)
        if "variables" in item:
            values = {name: value_bytes(value) for name, value in item["variables"].items()}
            events.append(VariablesChanged(self._request, item["forks"][0]["index"], values))
        return events

    def _count_step(self, step: Mapping[str, Any]) -> None:
        usage = step["usage"]
        self.counts.steps += 1
        self.counts.control_seconds = step.get("timing", {}).get("control_s")
        self.counts.sampled = usage["sampled_tokens"]
        self.counts.forced = usage["forced_tokens"]
        self.counts.backtracked = usage["backtracked_tokens"]
        self.counts.forks += sum("parent" in fork for fork in step["forks"])

    def _follow(
        self, fork: dict[str, Any], children: dict[int, list[dict[str, Any]]], events: list[Event]
    ) -> None:
        """Appends a fork's events in a step, then those of its children."""
        seq, pieces = fork["index"], fork["pieces"]
        own = children.get(seq, [])
        if "prompt" in fork:
            events.append(Started(self._request, seq, fork["prompt_ids"], fork["prompt"]))
        for at in range(len(pieces) + 1):
            if born := [child["index"] for child in own if child["after"] == at]:
                events.append(Forked(self._request, seq, born, by_engine=False))
            if at < len(pieces):
                events.append(self._piece(seq, pieces[at]))
        if "log" in fork:
            events.append(Log(self._request, seq, fork["log"]))
        if "suspended" in fork:
            events.append(Suspended(self._request, seq))
        if "finish_reason" in fork:
            reason = FinishReason(fork["finish_reason"])
            events.append(Finished(self._request, seq, reason, _error(fork)))
        for child in own:
            self._follow(child, children, events)

    def _piece(self, seq: int, piece: dict[str, Any]) -> Event:
        if "backtrack" in piece:
            return Backtracked(self._request, seq, piece["backtrack"], piece["text"])
        logprobs = top = None
        if "logprobs" in piece:
            logprobs = [_number(value) for value in piece["logprobs"]]
        if "top_logprobs" in piece:
            every = piece["top_logprobs"]
            top = [[(entry["token"], _number(entry["logprob"])) for entry in listed] for listed in every]
        tokens, origin, allowed = piece["tokens"], Origin(piece["origin"]), piece.get("allowed")
        return TokensAppended(self._request, seq, tokens, piece["text"], origin, logprobs, top, allowed)


def _number(value: float | None) -> float:
    return math.nan if value is None else value


class ServerEngine:
    """Runs at a server, with the methods of an engine that an evaluation uses."""

    def __init__(self, start: Callable[[Request], Generator[Mapping[str, Any], None, None]]) -> None:
        """`start`: sends a request with `details`, and returns its events."""
        self._start = start
        self._running: dict[int, tuple[Generator[Mapping[str, Any], None, None], RestEvents]] = {}
        self._ended: dict[int, Mapping[str, Any]] = {}
        self._added = 0
        #: whether a run goes on
        self.busy = False
        #: of the run of the last step
        self.stats = RunCounts()

    def add(self, request: Request) -> int:
        """Starts a run, and returns its number. Raises the errors of the client."""
        self._added += 1
        self._running[self._added] = self._start(request), RestEvents(self._added)
        self.busy = True
        return self._added

    def step(self) -> list[Event]:
        """Waits for the next event of a run; the runs take turns. Returns what happened."""
        number = next(iter(self._running))
        stream, events = self._running.pop(number)
        self.stats = events.counts
        happened = events.convert_item(next(stream))
        if events.end is None:
            self._running[number] = stream, events
        else:
            stream.close()
            self._ended[number] = events.end
            self.busy = bool(self._running)
        return happened

    def results(self, number: int) -> list[GenerationResult]:
        """Returns the results of a run that has ended, without their tokens. They can be fetched once."""
        end = self._ended.pop(number)
        variables = {name: value_bytes(value) for name, value in end["variables"].items()}
        first, seconds = (_number(end["timing"][name]) for name in ("first_token_s", "seconds"))

        def result(fork: Mapping[str, Any]) -> GenerationResult:
            return GenerationResult(
                request=number,
                seq=fork["index"],
                parent=fork["parent"],
                text=fork["text"],
                prompt=(),
                prompt_tokens=0,
                written=Written(array("I"), b"", array("f")),
                finish_reason=FinishReason(fork["finish_reason"]),
                error=_error(fork),
                log=fork["log"],
                variables=variables,
                score=None,
                **dict.fromkeys(("sampled", "forced", "backtracked"), 0),
                first_token_seconds=first,
                seconds=seconds,
            )

        return [result(fork) for fork in end["forks"]]

    def close(self) -> None:
        """Cancels the runs that go on."""
        for stream, _ in self._running.values():
            stream.close()


def _error(fork: Mapping[str, Any]) -> AiciError | None:
    error = fork.get("error")
    return error and error_from_wire([error["code"], error["message"], {}])
