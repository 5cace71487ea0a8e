"""Answers of chats with controllers that backtrack."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyaici.server.answers.calls import Call
from pyaici.server.answers.formats import CallFormat, Function
from pyaici.server.answers.known_formats import FORMATS, HERMES
from pyaici.server.answers.plan import AnswerPlan, Marks, Start
from pyaici.server.answers.reader import Reasoning, Text, open_reader
from pyaici.server.answers.text import TextDelta, TextToken
from pyaici.server.apis.openai.answer import ChatAnswer, MessageChange

_FUNCTIONS = [
    Function(name="now"),
    Function(
        name="weather", parameters={"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
    ),
]
_CALLS: list[tuple[str, Any]] = [("weather", {"city": "Oslo", "days": 12}), ("now", {})]


class _Streamed:
    """An answer, and what its reader finds in the pieces of its text."""

    def __init__(self, start: Start, form: CallFormat | None = None, schema: str | None = None) -> None:
        functions = tuple(_FUNCTIONS) if form else ()
        self.reader = open_reader(AnswerPlan(start, form, functions, schema=schema))
        self.answer = ChatAnswer(self.reader)

    def take(
        self, text: str, *, backtrack: int = 0, finish: str | None = None, **fields: Any
    ) -> MessageChange:
        """Adds a step as `AnswerText` reports it: `backtrack` characters are gone, then comes `text`."""
        events = (self.reader.cut(backtrack) if backtrack else []) + self.reader.feed(text)
        events += self.reader.end() if finish else []
        delta = TextDelta(text, backtrack, events, bool(backtrack), finish=finish, **fields)
        return self.answer.add_delta(delta)


#: a step: how many characters go, which come, and whether the answer ends then
_Step = tuple[int, str] | tuple[int, str, str]


def _assemble(streamed: _Streamed, steps: list[_Step]) -> dict[str, str]:
    """Returns the texts that a client has at the end of a stream."""
    texts = {"reasoning": "", "content": ""}
    for count, text, *finish in steps:
        change = streamed.take(text, backtrack=count, finish=finish[0] if finish else None)
        for kind, gone in (("reasoning", change.backtrack_reasoning), ("content", change.backtrack)):
            assert gone <= len(texts[kind])
            texts[kind] = texts[kind][: len(texts[kind]) - gone]
        for event in change.events:
            assert isinstance(event, Text | Reasoning)
            texts["content" if isinstance(event, Text) else "reasoning"] += event.text
    return texts


@pytest.mark.parametrize(
    ("start", "steps", "reasoning", "content"),
    [
        (Start(), [(0, "one"), (2, "wo"), (0, "", "stop")], "", "owo"),
        # content becomes reasoning, and reasoning becomes content
        (
            Start(Marks()),
            [
                (0, "<think>a</think>b"),
                (9, " c"),
                (0, "</think>d", "stop"),
            ],
            "a c",
            "d",
        ),
        (
            Start(Marks()),
            [(0, "<think>ab"), (9, "x"), (0, "", "stop")],
            "",
            "x",
        ),
        (
            Start(Marks(), open=True),
            [(0, "a</think>b"), (10, "c", "stop")],
            "c",
            "",
        ),
        (
            Start(Marks()),
            [(0, "x"), (1, "<think>y</think>z", "stop")],
            "y",
            "z",
        ),
        # only text that was held back is backtrack
        (
            Start(Marks()),
            [(0, "<think>a</thi"), (5, "b"), (0, "", "stop")],
            "ab",
            "",
        ),
    ],
)
def test_backtracked_answer_is_read_again(
    start: Start, steps: list[_Step], reasoning: str, content: str
) -> None:
    streamed = _Streamed(start)
    assert _assemble(streamed, steps) == {"reasoning": reasoning, "content": content}
    answer = streamed.answer
    assert (answer.reasoning, answer.content, answer.finish) == (reasoning, content, "stop")


@given(st.lists(st.tuples(st.integers(0, 9), st.text("a<>/think ", max_size=9)), max_size=8), st.booleans())
def test_stream_adds_up_to_the_whole_answer(changes: list[tuple[int, str]], opened: bool) -> None:
    streamed, raw, steps = _Streamed(Start(Marks(), open=opened)), "", list[_Step]()
    for count, text in changes:
        count = min(count, len(raw))
        raw = raw[: len(raw) - count] + text
        steps.append((count, text))
    found = _assemble(streamed, [*steps, (0, "", "stop")])
    whole = _Streamed(Start(Marks(), open=opened))
    whole.take(raw, finish="stop")
    assert found == {"reasoning": streamed.answer.reasoning, "content": streamed.answer.content}
    assert found == {"reasoning": whole.answer.reasoning, "content": whole.answer.content}


def test_backtracked_tokens_are_removed() -> None:
    streamed = _Streamed(Start(Marks()))
    tokens = [TextToken(number, number) for number in range(5)]
    streamed.take("<think>ab", tokens=tokens[:3])
    streamed.take("", backtrack=1, tokens=tokens[3:], backtrack_tokens=2)
    assert [token.token for token in streamed.answer.tokens] == [0, 3, 4]


@pytest.mark.parametrize(("finish", "expected"), [("stop", "tool_calls"), ("length", "length")])
def test_cut_off_calls_have_finish_reason_length(finish: str, expected: str) -> None:
    streamed = _Streamed(Start(), HERMES)
    streamed.take(HERMES.write([("now", {})]) + "\n<tool_call>\n{"[: None if finish == "length" else -13])
    streamed.take("", finish=finish)
    assert len(streamed.answer.calls) == 1 and streamed.answer.finish == expected


def _called(answer: ChatAnswer) -> list[tuple[str, Any]]:
    return [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in answer.calls]


@pytest.mark.parametrize("with_schema", [False, True])
@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_cut_off_answer_has_whole_calls_only_and_equals_its_stream(
    form: CallFormat, with_schema: bool
) -> None:
    """`with_schema`: the answer is calls or JSON of a schema, see `AnswerPlan.exclusive`."""
    form = form.bound(_FUNCTIONS)
    calls = _CALLS[:1] if form.name in ("llama3", "harmony") else _CALLS
    start = Start(channels=form.name == "harmony")
    schema = "{}" if with_schema else None
    text = form.write(calls)
    for end in range(len(text) + 1):
        whole, streamed = _Streamed(start, form, schema), _Streamed(start, form, schema)
        whole.take(text[:end], finish="length")
        events = [event for char in text[:end] for event in streamed.take(char).events]
        events += streamed.take("", finish="length").events
        assert whole.answer.finish == streamed.answer.finish == "length"
        assert _called(whole.answer) == _called(streamed.answer) == calls[: len(whole.answer.calls)]
        assert len(whole.answer.calls) == sum(isinstance(event, Call) for event in events)
        texts = "".join(event.text for event in events if isinstance(event, Text))
        assert texts == whole.answer.content == streamed.answer.content
    assert _called(whole.answer) == calls and not whole.answer.content
