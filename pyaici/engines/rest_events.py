"""Converts the stream of `POST /v1/run` into engine events, and results of an engine into its answer.

So remote runs look like local ones, in a terminal and as JSON. The server uses what both have in common.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from aicirt.contract.errors import AiciError, error_from_wire
from pyaici.client.arguments import value_bytes, value_json
from pyaici.engines.engine import (
    BackTracked,
    Counts,
    Event,
    Finished,
    FinishReason,
    Forked,
    GenerationResult,
    Log,
    Origin,
    Started,
    Suspended,
    TokensAppended,
    VariablesChanged,
)

#: a stream is about one request
_REQUEST = 0


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
            "finish_reason": result.reason.value,
            "error": result.error and {"code": result.error.code, "message": message(result.error)},
            "logs": result.log,
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


class RestEvents:
    """Converts the objects that `RestClient.run` yields, in order. Sequences are numbered by fork index.

    The events of a sequence are in the order in which they happened. In one step, the events of all
    sequences come one sequence after the other, parents before their forks. A controller's output in a step
    is one event.
    """

    def __init__(self) -> None:
        #: counts so far
        self.counts = Counts()
        #: the last object of the stream, once received: how all forks ended, and times
        self.end: dict[str, Any] | None = None

    def convert_item(self, item: dict[str, Any]) -> list[Event]:
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
            events.append(VariablesChanged(_REQUEST, item["forks"][0]["index"], values))
        return events

    def _count_step(self, step: dict[str, Any]) -> None:
        usage = step["usage"]
        self.counts.steps += 1
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
            events.append(Started(_REQUEST, seq, fork["prompt_ids"], fork["prompt"]))
        for at in range(len(pieces) + 1):
            if born := [child["index"] for child in own if child["after"] == at]:
                events.append(Forked(_REQUEST, seq, born, by_engine=False))
            if at < len(pieces):
                events.append(_piece(seq, pieces[at]))
        if "logs" in fork:
            events.append(Log(_REQUEST, seq, fork["logs"]))
        if "suspended" in fork:
            events.append(Suspended(_REQUEST, seq))
        if "finish_reason" in fork:
            error = fork.get("error")
            cause = error and error_from_wire([error["code"], error["message"], {}])
            events.append(Finished(_REQUEST, seq, FinishReason(fork["finish_reason"]), cause))
        for child in own:
            self._follow(child, children, events)


def _piece(seq: int, piece: dict[str, Any]) -> Event:
    if "backtrack" in piece:
        return BackTracked(_REQUEST, seq, piece["backtrack"], piece["removed"])
    logprobs = top = None
    if "logprobs" in piece:
        logprobs = [_number(value) for value in piece["logprobs"]]
    if "top" in piece:
        top = [[(entry["token"], _number(entry["logprob"])) for entry in listed] for listed in piece["top"]]
    tokens, origin, allowed = piece["tokens"], Origin(piece["origin"]), piece.get("allowed")
    return TokensAppended(_REQUEST, seq, tokens, piece["text"], origin, logprobs, top, allowed)


def _number(value: float | None) -> float:
    return math.nan if value is None else value
