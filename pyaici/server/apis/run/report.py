"""Converts the engine's events of a run into the JSON of `POST /v1/run`, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyaici.client.arguments import value_json
from pyaici.engines.engine import (
    Backtracked,
    Counts,
    Finished,
    Forked,
    Log,
    PromptCached,
    Started,
    Suspended,
    TokensAppended,
    VariablesChanged,
)
from pyaici.engines.rest_events import end_json, finite, usage_json
from pyaici.server.apis.answers import in_pieces
from pyaici.server.http.errors import public_message
from pyaici.server.scheduling.streams import CallEnded, CallMade, StepTimed

if TYPE_CHECKING:
    from aicirt.contract.errors import AiciError
    from pyaici.engines.engine import Event, GenerationResult
    from pyaici.server.models import ServedModel


class RunReport:
    """Turns the engine's events into JSON objects. Forks are numbered from 0."""

    def __init__(self, model: ServedModel) -> None:
        self._model = model
        #: number of each fork, by the engine's number of the sequence
        self._index: dict[int, int] = {}
        #: text of each fork so far
        self._texts: dict[int, str] = {}
        self._prompt_tokens, self._counts = 0, Counts()

    def step(self, events: list[Event]) -> dict[str, Any]:
        """Returns a step: the events of each fork, and the changes of the variables that forks share."""
        forks: dict[int, dict[str, Any]] = {}
        variables: dict[str, Any] = {}
        timing: dict[str, float | None] | None = None
        calls: list[dict[str, Any]] = []
        for event in events:
            if isinstance(event, (CallMade, CallEnded)):
                calls.append(call_json(event))
                continue
            if isinstance(event, PromptCached):
                continue
            if isinstance(event, StepTimed):
                timing = {"step_s": event.seconds, "control_s": event.control_seconds}
                continue
            fork = forks.setdefault(self._index_of(event.seq), self._fork(event.seq))
            if isinstance(event, VariablesChanged):
                variables |= {name: value_json(value) for name, value in event.values.items()}
            elif isinstance(event, Forked):
                for child in event.children:
                    number = self._index_of(child)
                    text = self._texts[number] = self._texts[fork["index"]]
                    # the child's text may be shorter than the parent's text at the end of this step
                    forks[number] = {
                        **self._fork(child),
                        "parent": fork["index"],
                        "after": len(fork["pieces"]),
                        "text": text,
                    }
            else:
                self._add(fork, event)
        step: dict[str, Any] = {"object": "run", "forks": list(forks.values()), "usage": self._usage()}
        if variables:
            step["variables"] = variables
        if calls:
            step["calls"] = calls
        if timing is not None:
            step["timing"] = timing
        return step

    async def end(self, results: list[GenerationResult], header: dict[str, Any] | None = None) -> str:
        """Returns the final state of all forks as JSON, after the members of `header`.

        A request may have a thousand forks: other requests have their turns between them.
        """
        ended = end_json(results, self._usage(), self._index_of, public_message)
        return await in_pieces({**(header or {"object": "run.end"}), **ended})

    def _usage(self) -> dict[str, int]:
        counts = self._counts
        return usage_json(self._prompt_tokens, counts.sampled, counts.forced, counts.backtracked)

    def _index_of(self, seq: int) -> int:
        return self._index.setdefault(seq, len(self._index))

    def _fork(self, seq: int) -> dict[str, Any]:
        return {"index": self._index_of(seq), "text": "", "pieces": []}

    def _add(self, fork: dict[str, Any], event: Event) -> None:
        match event:
            case Started():
                # several sequences have the same prompt, which counts once
                self._prompt_tokens = len(event.tokens)
                fork["prompt"] = event.prompt
                fork["prompt_ids"] = event.tokens
                self._texts[fork["index"]] = ""
            case TokensAppended():
                self._appended(fork, event)
            case Backtracked():
                self._counts.backtracked += event.count
                self._take_back(fork, event)
            case Log():
                fork["log"] = fork.get("log", "") + event.text
            case Suspended():
                fork["suspended"] = True
            case Finished():
                fork["finish_reason"] = event.finish_reason.value
                self._texts.pop(fork["index"], None)
                if event.error is not None:
                    fork["error"] = error_json(event.error)

    def _take_back(self, fork: dict[str, Any], event: Backtracked) -> None:
        """Removes text, first of this step, then of earlier steps. A prompt is not part of the text."""
        fork.pop("suspended", None)
        fork["pieces"].append({"backtrack": event.count, "text": event.text})
        text = self._texts[fork["index"]]
        count = min(len(text), len(event.text))
        self._texts[fork["index"]] = text[: len(text) - count]
        now = min(count, len(fork["text"]))
        fork["text"] = fork["text"][: len(fork["text"]) - now]
        if count > now:
            fork["backtrack"] = fork.get("backtrack", 0) + count - now

    def _appended(self, fork: dict[str, Any], event: TokensAppended) -> None:
        count = len(event.tokens)
        fork.pop("suspended", None)  # it continued within the step
        if event.origin.value == "forced":
            self._counts.forced += count
        else:
            self._counts.sampled += count
        fork["text"] += event.text
        self._texts[fork["index"]] += event.text
        piece: dict[str, Any] = {"text": event.text, "origin": event.origin.value, "tokens": event.tokens}
        if event.logprobs is not None:
            piece["logprobs"] = [finite(value) for value in event.logprobs]
        if (listed := event.top_logprobs) is not None:
            piece["top_logprobs"] = [[self._candidate(*pair) for pair in pairs] for pairs in listed]
        if event.allowed is not None:
            piece["allowed"] = event.allowed
        fork["pieces"].append(piece)

    def _candidate(self, token: int, logprob: float) -> dict[str, Any]:
        return {"token": token, "text": self._model.token_text(token), "logprob": finite(logprob)}


def call_json(event: CallMade | CallEnded) -> dict[str, Any]:
    """Returns the beginning of a call, or its end."""
    if isinstance(event, CallEnded):
        outcome = {"error": event.code or None, "seconds": event.seconds, "bytes": event.nbytes}
        return {"id": event.id, "ended": True, **outcome}
    return {"id": event.id, "name": event.name, "arguments": event.arguments, "answer": event.wanted}


def error_json(error: AiciError) -> dict[str, Any]:
    """Returns a controller's error as clients get it."""
    return {"code": error.code, "message": public_message(error)}
