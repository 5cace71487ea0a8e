"""What a server tells of a run comes out as what its engine has told, whatever happens in a step."""

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
    BackTracked,
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
from pyaici.server.apis.run.story import RunStory

MODEL = cast("Any", SimpleNamespace(token_text=str))
#: of tokens: one is readable with the next token only, some end lines elsewhere, one is beyond 16 bits
TEXTS = ["a", "bc", "", "\u2028", "\x85\r\n", "\U0001f600", " "]


@dataclass
class Making:
    """Events of an engine, made up at random; numbers of sequences begin at 40, as in an engine in use."""

    steps: list[list[Event]] = field(default_factory=lambda: [[Started(9, 40, [5, 6], "the prompt")]])
    #: texts of the tokens of each live sequence
    live: dict[int, list[str]] = field(default_factory=lambda: {40: ["the ", "prompt"]})
    made: int = 1

    def say(self, event: Event) -> None:
        self.steps[-1].append(event)

    def append(self, seq: int, draw: st.DataObject) -> None:
        texts = draw.draw(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=3))
        self.live[seq] += texts
        tokens = [TEXTS.index(text) for text in texts]
        if draw.draw(st.booleans()):
            self.say(TokensAppended(9, seq, tokens, "".join(texts), Origin.FORCED))
        else:
            known = [-0.5, -math.inf][: len(tokens)] + [-1.0] * (len(tokens) - 2)
            top = [[(3, -0.25), (4, -math.inf)]] * len(tokens)
            allowed = draw.draw(st.sampled_from([None, 3]))
            self.say(TokensAppended(9, seq, tokens, "".join(texts), Origin.SAMPLED, known, top, allowed))

    def take_back(self, seq: int, draw: st.DataObject) -> None:
        texts = self.live[seq]
        count = draw.draw(st.integers(0, len(texts)))
        removed = "".join(texts[len(texts) - count :])
        del texts[len(texts) - count :]
        self.say(BackTracked(9, seq, count, removed))

    def fork(self, seq: int, draw: st.DataObject) -> None:
        children = [40 + self.made + i for i in range(draw.draw(st.integers(1, 3)))]
        self.made += len(children)
        for child in children:
            self.live[child] = self.live[seq].copy()
        self.say(Forked(9, seq, children, by_engine=False))

    def finish(self, seq: int, draw: st.DataObject) -> None:
        del self.live[seq]
        reason = draw.draw(st.sampled_from(FinishReason))
        self.say(Finished(9, seq, reason, TrapError("oh") if reason is FinishReason.ERROR else None))

    def suspend(self, seq: int, draw: st.DataObject) -> None:
        self.say(Suspended(9, seq))

    def log(self, seq: int, draw: st.DataObject) -> None:
        self.say(Log(9, seq, draw.draw(st.sampled_from(["one\n", "two"]))))

    def write(self, seq: int, draw: st.DataObject) -> None:
        value = draw.draw(st.sampled_from([b"text", b"\xff", b'{"base64": "AA=="}']))
        self.say(VariablesChanged(9, seq, {draw.draw(st.sampled_from("xy")): value}))

    def next_step(self, seq: int, draw: st.DataObject) -> None:
        self.steps.append([])


def retold(steps: list[list[Event]]) -> tuple[list[Event], RestEvents]:
    """The events after their way over the wire."""
    story, read = RunStory(MODEL), RestEvents()
    told = [json.loads(json.dumps(story.tell(step), ensure_ascii=False)) for step in steps if step]
    return [event for step in told for event in read.take(step)], read


@given(st.data())
def test_any_run(data: st.DataObject) -> None:
    making = Making()
    deeds = [making.append, making.take_back, making.fork, making.finish]
    deeds += [making.suspend, making.log, making.write, making.next_step]
    for _ in range(data.draw(st.integers(0, 25))):
        if making.live:
            data.draw(st.sampled_from(deeds))(data.draw(st.sampled_from(sorted(making.live))), data)
    # the story counts forks in the order in which they were made
    before = [renumbered(event) for step in making.steps for event in step]
    after, read = retold(making.steps)
    assert by_sequence(after) == by_sequence(before)
    assert transcripts(after) == transcripts(before)
    assert variables(after) == variables(before)
    assert read.counts.steps == sum(1 for step in making.steps if step)
    assert read.counts.forks == making.made - 1
    appended = [event for event in before if isinstance(event, TokensAppended)]
    assert read.counts.sampled + read.counts.forced == sum(len(event.tokens) for event in appended)


def renumbered(event: Event) -> Event:
    event = replace(event, request=0, seq=event.seq - 40)
    if isinstance(event, Forked):
        return replace(event, children=[child - 40 for child in event.children])
    if isinstance(event, TokensAppended) and event.logprobs is not None:
        # JSON knows no infinity
        known = [value if math.isfinite(value) else None for value in event.logprobs]
        return replace(event, logprobs=known, top=[[(3, -0.25), (4, None)]] * len(known))
    return event


def by_sequence(events: list[Event]) -> dict[int, list[Event]]:
    """What each has done to its text, in order; forks at one point of the text as one, and nan as None."""
    found: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        own = found[event.seq]
        if isinstance(event, Forked) and own and isinstance(own[-1], Forked):
            own[-1] = replace(own[-1], children=[*own[-1].children, *event.children])
        elif isinstance(event, TokensAppended) and event.logprobs is not None and event.top is not None:
            known = [None if value is None or math.isnan(value) else value for value in event.logprobs]
            top = [
                [(t, None if v is None or math.isnan(v) else v) for t, v in listed] for listed in event.top
            ]
            own.append(replace(event, logprobs=cast("Any", known), top=cast("Any", top)))
        elif isinstance(event, Finished):
            error = None if event.error is None else repr(event.error)
            own.append(replace(event, error=cast("Any", error)))
        elif isinstance(event, (Started, TokensAppended, BackTracked, Forked)):
            own.append(event)
    return {seq: own for seq, own in found.items() if own}


def transcripts(events: list[Event]) -> Any:
    """What a person sees of each sequence."""
    shown = Transcripts()
    for event in events:
        shown.take(event)
    return sorted(shown.by_seq.items())


def variables(events: list[Event]) -> dict[str, bytes]:
    values: dict[str, bytes] = {}
    for event in events:
        if isinstance(event, VariablesChanged):
            values |= event.values
    return values
