"""What has become of requests to vLLM: its outputs, and the events in them, as sequences with histories."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aicirt.contract.errors import AiciError, error_from_wire
from pyaici.engines.counts import Counts
from pyaici.engines.events import (
    BackTracked,
    Event,
    Finished,
    Forked,
    Log,
    Started,
    Suspended,
    TokensAppended,
    VariablesChanged,
)
from pyaici.engines.record import NAN, Record
from pyaici.engines.request import FinishReason, GenerationResult, Origin, Request
from pyaici.engines.text import TextTrail
from pyaici.engines.vllm.events import events_of, variables_of

if TYPE_CHECKING:
    from pyaici.tokens import Vocabulary


@dataclass(slots=True)
class Family:
    """One of vLLM's requests: a sequence, and what is forked from it, by vLLM's index."""

    name: str
    number: int
    request: Request
    #: outputs have events that tell what tokens are; else all have been sampled
    events: bool
    sequences: dict[int, Record] = field(default_factory=dict)
    #: log-probabilities of tokens of which no event has told yet, each with the most likely tokens in its
    #: place, by index
    logprobs: dict[int, deque[tuple[float, list[tuple[int, float]]]]] = field(default_factory=dict)
    #: how many tokens outputs repeat that children have from their parents, by index
    repeated: dict[int, int] = field(default_factory=dict)
    #: events of children whose parents' events have not told of them yet, by index
    early: dict[int, list[Any]] = field(default_factory=dict)


class Families:
    """All that are unfinished, and results that nobody has fetched."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._families: dict[str, Family] = {}
        self._ended: dict[int, list[Record]] = {}
        self._numbers = itertools.count()
        self._events: list[Event] = []
        self.counts = Counts()

    # -- requests -------------------------------------------------------------------------------

    def start(self, name: str, number: int, request: Request, tokens: list[int], *, events: bool) -> None:
        """A request that vLLM is given by this name."""
        family = self._families[name] = Family(name, number, request, events)
        self._ended.setdefault(number, [])
        record = family.sequences[0] = self._record(family)
        text = record.append(tokens, Origin.PROMPT)
        self._events.append(Started(number, record.id, list(tokens), text))

    @property
    def busy(self) -> bool:
        """Whether any is unfinished."""
        return bool(self._families)

    @property
    def unfinished(self) -> list[int]:
        """Numbers of requests that go on."""
        return sorted({family.number for family in self._families.values()})

    def names(self, number: int) -> list[str]:
        """What vLLM calls the unfinished parts of a request."""
        return [name for name, family in self._families.items() if family.number == number]

    def cancel(self, number: int) -> None:
        """The request has been aborted."""
        for name in self.names(number):
            family = self._families.pop(name)
            for record in family.sequences.values():
                if record.reason is None:
                    self._finish(family, record, FinishReason.CANCELLED, None)

    def results(self, number: int) -> list[GenerationResult]:
        """Of a request that has ended, which is then forgotten. Raises ValueError before its end."""
        if self.names(number):
            raise ValueError(f"request {number} still has sequences to finish")
        records = self._ended.pop(number)
        return [record.result() for record in sorted(records, key=lambda record: record.id)]

    def drain(self) -> list[Event]:
        """The events since the last call."""
        events, self._events = self._events, []
        return events

    # -- what vLLM says -------------------------------------------------------------------------

    def take(self, output: Any) -> None:
        """A `RequestOutput` of one choice."""
        family = self._families.get(output.request_id)
        if family is None:
            return
        (choice,) = output.outputs
        told = events_of(output)
        if not family.events and choice.token_ids:
            told = [["sampled", list(choice.token_ids)]]
        if choice.logprobs:
            values = family.logprobs.setdefault(choice.index, deque())
            pairs = zip(choice.token_ids, choice.logprobs, strict=True)
            values.extend(
                (listed[token].logprob, _most_likely(listed, family.request.top_logprobs))
                for token, listed in pairs
            )
            while family.repeated.get(choice.index, 0) and values:
                values.popleft()
                family.repeated[choice.index] -= 1
        record = family.sequences.get(choice.index)
        if record is None:
            family.early.setdefault(choice.index, []).extend(told)
        else:
            error: AiciError | None = None
            for word, *what in told:
                if word == "error":
                    error = error_from_wire(what[0])
                else:
                    self._follow(family, choice.index, record, word, what)
            if choice.finish_reason is not None:
                self._end(family, record, choice, error)
        if output.finished:
            del self._families[family.name]

    def _follow(self, family: Family, index: int, record: Record, word: str, what: list[Any]) -> None:
        number, seq = family.number, record.id
        if word in ("sampled", "forced"):
            self._append(family, index, record, what[0], Origin(word))
        elif word == "back":
            self.counts.backtracked += what[0]
            self._events.append(BackTracked(number, seq, what[0], record.backtrack(what[0])))
        elif word == "forked":
            self.counts.forks += len(what[0])
            children = [self._record(family) for _ in what[0]]
            for at, child in zip(what[0], children, strict=True):
                record.copy_to(child)
                family.sequences[at] = child
                family.repeated[at] = child.new_tokens
            self._events.append(Forked(number, seq, [child.id for child in children], by_engine=False))
            for at in what[0]:
                for word, *early in family.early.pop(at, ()):
                    self._follow(family, at, family.sequences[at], word, early)
        elif word == "suspended":
            self._events.append(Suspended(number, seq))
        elif word == "log":
            record.print(what[0])
            self._events.append(Log(number, seq, what[0]))
        elif word == "variables":
            values = variables_of(what[0])
            record.variables.update(values)
            self._events.append(VariablesChanged(number, seq, values))

    def _append(self, family: Family, index: int, record: Record, tokens: list[int], origin: Origin) -> None:
        values = family.logprobs.get(index, deque())
        logprobs: list[float] | None = None
        top: list[list[tuple[int, float]]] = []
        if origin is Origin.FORCED:
            self.counts.forced += len(tokens)
            text = record.append(tokens, origin)
            for _ in tokens:
                values and values.popleft()
        else:
            self.counts.sampled += len(tokens)
            text = ""
            known: list[float] = []
            for token in tokens:
                logprob, best = values.popleft() if values else (NAN, [])
                text += record.append([token], origin, logprob)
                known.append(logprob)
                top.append(best)
            if family.request.logprobs:
                logprobs = known
        self._events.append(
            TokensAppended(
                family.number,
                record.id,
                tokens,
                text,
                origin,
                logprobs,
                top if logprobs and family.request.top_logprobs else None,
            )
        )

    def _end(self, family: Family, record: Record, choice: Any, error: AiciError | None) -> None:
        reason = FinishReason.EOS
        if choice.finish_reason in ("error", "abort"):
            reason = FinishReason.ERROR
            error = error or AiciError(str(choice.stop_reason or "vLLM failed"))
        elif choice.stop_reason == "work":
            reason = FinishReason.WORK
        elif choice.finish_reason == "length":
            reason = FinishReason.LENGTH
        elif choice.stop_reason == "controller":
            reason = FinishReason.STOP
        self._finish(family, record, reason, error if reason is FinishReason.ERROR else None)

    def _finish(self, family: Family, record: Record, reason: FinishReason, error: AiciError | None) -> None:
        record.reason, record.error = reason, error
        record.end()
        self._ended[family.number].append(record)
        self._events.append(Finished(family.number, record.id, reason, error))

    def _record(self, family: Family) -> Record:
        return Record(
            id=next(self._numbers),
            request_id=family.number,
            request=family.request,
            trail=TextTrail(self._vocabulary.token_bytes),
        )


def _most_likely(listed: Mapping[int, Any], count: int) -> list[tuple[int, float]]:
    """(token, log-probability) of the first `count`; vLLM lists the sampled token besides."""
    ranked = sorted(listed.items(), key=lambda item: item[1].logprob, reverse=True)
    return [(token, entry.logprob) for token, entry in ranked[:count]]
