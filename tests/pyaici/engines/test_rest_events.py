"""Events of a run are equal before and after their way over HTTP, for any sequence of events."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from aicirt.contract.errors import TrapError
from pyaici.engines.engine import (
    Backtracked,
    Event,
    Finished,
    FinishReason,
    Forked,
    Log,
    Origin,
    Started,
    Suspended,
    TokensAppended,
    VariablesChanged,
)
from pyaici.engines.rest_events import RestEvents
from pyaici.engines.terminal import Transcripts
from pyaici.server.apis.run.report import RunReport

MODEL = cast("Any", SimpleNamespace(token_text=str))
#: texts of tokens: an empty one, some that some programs treat as line ends, and one beyond 16 bits
TEXTS = ["a", "bc", "", "\u2028", "\x85\r\n", "\U0001f600", " "]


@dataclass
class RandomRun:
    """Random events of an engine. Sequence numbers begin at 40, as in an engine that has run before."""

    steps: list[list[Event]] = field(default_factory=lambda: [[Started(9, 40, [5, 6], "the prompt")]])
    #: texts of the tokens of each live sequence
    live: dict[int, list[str]] = field(default_factory=lambda: {40: ["the ", "prompt"]})
    made: int = 1

    def add(self, event: Event) -> None:
        self.steps[-1].append(event)

    def append(self, seq: int, draw: st.DataObject) -> None:
        texts = draw.draw(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=3))
        self.live[seq] += texts
        tokens = [TEXTS.index(text) for text in texts]
        if draw.draw(st.booleans()):
            self.add(TokensAppended(9, seq, tokens, "".join(texts), Origin.FORCED))
        else:
            known = [-0.5, -math.inf][: len(tokens)] + [-1.0] * (len(tokens) - 2)
            top = [[(3, -0.25), (4, -math.inf)]] * len(tokens)
            allowed = draw.draw(st.sampled_from([None, 3]))
            self.add(TokensAppended(9, seq, tokens, "".join(texts), Origin.SAMPLED, known, top, allowed))

    def backtrack(self, seq: int, draw: st.DataObject) -> None:
        texts = self.live[seq]
        count = draw.draw(st.integers(0, len(texts)))
        removed = "".join(texts[len(texts) - count :])
        del texts[len(texts) - count :]
        self.add(Backtracked(9, seq, count, removed))

    def fork(self, seq: int, draw: st.DataObject) -> None:
        children = [40 + self.made + i for i in range(draw.draw(st.integers(1, 3)))]
        self.made += len(children)
        for child in children:
            self.live[child] = self.live[seq].copy()
        self.add(Forked(9, seq, children, by_engine=False))

    def finish(self, seq: int, draw: st.DataObject) -> None:
        del self.live[seq]
        reason = draw.draw(st.sampled_from(FinishReason))
        self.add(Finished(9, seq, reason, TrapError("oh") if reason is FinishReason.ERROR else None))

    def suspend(self, seq: int, draw: st.DataObject) -> None:
        self.add(Suspended(9, seq))

    def log(self, seq: int, draw: st.DataObject) -> None:
        self.add(Log(9, seq, draw.draw(st.sampled_from(["one\n", "two"]))))

    def write(self, seq: int, draw: st.DataObject) -> None:
        value = draw.draw(st.sampled_from([b"text", b"\xff", b'{"base64": "AA=="}']))
        self.add(VariablesChanged(9, seq, {draw.draw(st.sampled_from("xy")): value}))

    def next_step(self, seq: int, draw: st.DataObject) -> None:
        self.steps.append([])


def send(steps: list[list[Event]]) -> tuple[list[Event], RestEvents]:
    """Encodes the events as the server does, and returns what the client decodes."""
    report, read = RunReport(MODEL), RestEvents()
    sent = [json.loads(json.dumps(report.step(step), ensure_ascii=False)) for step in steps if step]
    return [event for step in sent for event in read.convert_item(step)], read


@given(st.data())
def test_a_random_run_is_equal_after_transmission(data: st.DataObject) -> None:
    run = RandomRun()
    actions = [run.append, run.backtrack, run.fork, run.finish]
    actions += [run.suspend, run.log, run.write, run.next_step]
    for _ in range(data.draw(st.integers(0, 25))):
        if run.live:
            data.draw(st.sampled_from(actions))(data.draw(st.sampled_from(sorted(run.live))), data)
    # the report numbers forks in the order in which they were made
    before = [renumbered(event) for step in run.steps for event in step]
    after, read = send(run.steps)
    assert by_sequence(after) == by_sequence(before)
    assert transcripts(after) == transcripts(before)
    assert variables(after) == variables(before)
    assert read.counts.steps == sum(1 for step in run.steps if step)
    assert read.counts.forks == run.made - 1
    appended = [event for event in before if isinstance(event, TokensAppended)]
    assert read.counts.sampled + read.counts.forced == sum(len(event.tokens) for event in appended)


def renumbered(event: Event) -> Event:
    event = replace(event, request=0, seq=event.seq - 40)
    if isinstance(event, Forked):
        return replace(event, children=[child - 40 for child in event.children])
    if isinstance(event, TokensAppended) and event.logprobs is not None:
        # JSON has no infinity
        known = [value if math.isfinite(value) else None for value in event.logprobs]
        return replace(event, logprobs=known, top_logprobs=[[(3, -0.25), (4, None)]] * len(known))
    return event


def by_sequence(events: list[Event]) -> dict[int, list[Event]]:
    """Returns the events of each sequence that change its text, in order.

    Forks at the same point of the text are merged, and nan becomes None.
    """
    found: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        own = found[event.seq]
        if isinstance(event, Forked) and own and isinstance(own[-1], Forked):
            own[-1] = replace(own[-1], children=[*own[-1].children, *event.children])
        elif (
            isinstance(event, TokensAppended)
            and event.logprobs is not None
            and event.top_logprobs is not None
        ):
            known = [None if value is None or math.isnan(value) else value for value in event.logprobs]
            top = [
                [(t, None if v is None or math.isnan(v) else v) for t, v in listed]
                for listed in event.top_logprobs
            ]
            own.append(replace(event, logprobs=cast("Any", known), top_logprobs=cast("Any", top)))
        elif isinstance(event, Finished):
            error = None if event.error is None else repr(event.error)
            own.append(replace(event, error=cast("Any", error)))
        elif isinstance(event, (Started, TokensAppended, Backtracked, Forked)):
            own.append(event)
    return {seq: own for seq, own in found.items() if own}


def transcripts(events: list[Event]) -> Any:
    """Returns the displayed text of each sequence."""
    shown = Transcripts()
    for event in events:
        shown.apply_event(event)
    return sorted(shown.by_seq.items())


def variables(events: list[Event]) -> dict[str, bytes]:
    values: dict[str, bytes] = {}
    for event in events:
        if isinstance(event, VariablesChanged):
            values |= event.values
    return values
