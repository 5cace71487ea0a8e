"""Answers of chats with controllers that backtrack."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyaici.server.apis.openai.answer import ChatAnswer
from pyaici.server.apis.openai.grammar import Reasoning, Start
from pyaici.server.apis.openai.reader import Call, TextChunk
from pyaici.server.apis.openai.requests import Function
from pyaici.server.apis.openai.tool_format import ToolFormat
from pyaici.server.apis.openai.tool_formats import FORMATS, HERMES
from pyaici.server.apis.text import TextDelta, TextToken


def _answer(
    start: Start, form: ToolFormat | None = None, exclusive: frozenset[str] | None = None
) -> ChatAnswer:
    # the other fields of a plan are about the prompt
    plan: Any = SimpleNamespace(start=start, form=form, exclusive=exclusive)
    return ChatAnswer(plan)


def _assemble(answer: ChatAnswer, deltas: list[TextDelta]) -> dict[str, str]:
    """Returns the texts that a client has at the end of a stream."""
    texts = {"reasoning": "", "content": ""}
    for delta in deltas:
        change = answer.take(delta)
        for kind, count in (("reasoning", change.retracted_reasoning), ("content", change.retracted)):
            assert count <= len(texts[kind])
            texts[kind] = texts[kind][: len(texts[kind]) - count]
        for part in change.parts:
            texts[part.kind] += part.text  # type: ignore[union-attr]
    return texts


@pytest.mark.parametrize(
    ("start", "deltas", "reasoning", "content"),
    [
        (Start(), [TextDelta("one"), TextDelta("wo", retracted=2), TextDelta(finish="stop")], "", "owo"),
        # content becomes reasoning, and reasoning becomes content
        (
            Start(Reasoning()),
            [
                TextDelta("<think>a</think>b"),
                TextDelta(" c", retracted=9),
                TextDelta("</think>d", finish="stop"),
            ],
            "a c",
            "d",
        ),
        (
            Start(Reasoning()),
            [TextDelta("<think>ab"), TextDelta("x", retracted=9), TextDelta(finish="stop")],
            "",
            "x",
        ),
        (
            Start(Reasoning(), open=True),
            [TextDelta("a</think>b"), TextDelta("c", retracted=10, finish="stop")],
            "c",
            "",
        ),
        (
            Start(Reasoning()),
            [TextDelta("x"), TextDelta("<think>y</think>z", retracted=1, finish="stop")],
            "y",
            "z",
        ),
        # only text that was held back is retracted
        (
            Start(Reasoning()),
            [TextDelta("<think>a</thi"), TextDelta("b", retracted=5), TextDelta(finish="stop")],
            "ab",
            "",
        ),
    ],
)
def test_backtracked_answer_is_read_again(
    start: Start, deltas: list[TextDelta], reasoning: str, content: str
) -> None:
    answer = _answer(start)
    assert _assemble(answer, deltas) == {"reasoning": reasoning, "content": content}
    assert (answer.reasoning, answer.content, answer.finish) == (reasoning, content, "stop")


@given(st.lists(st.tuples(st.integers(0, 9), st.text("a<>/think ", max_size=9)), max_size=8), st.booleans())
def test_stream_adds_up_to_the_whole_answer(steps: list[tuple[int, str]], opened: bool) -> None:
    answer, raw, deltas = _answer(Start(Reasoning(), open=opened)), "", []
    for count, text in steps:
        count = min(count, len(raw))
        raw = raw[: len(raw) - count] + text
        deltas.append(TextDelta(text, retracted=count))
    found = _assemble(answer, [*deltas, TextDelta(finish="stop")])
    whole = _answer(Start(Reasoning(), open=opened))
    whole.take(TextDelta(raw, finish="stop"))
    assert found == {"reasoning": answer.reasoning, "content": answer.content}
    assert (answer.reasoning, answer.content) == (whole.reasoning, whole.content)


def test_backtracked_tokens_are_removed() -> None:
    answer = _answer(Start(Reasoning()))
    tokens = [TextToken(number, number) for number in range(5)]
    answer.take(TextDelta("<think>ab", tokens=tokens[:3]))
    answer.take(TextDelta("", retracted=1, tokens=tokens[3:], retracted_tokens=2))
    assert [token.token for token in answer.tokens] == [0, 3, 4]


@pytest.mark.parametrize(("finish", "expected"), [("stop", "tool_calls"), ("length", "length")])
def test_cut_off_calls_have_finish_reason_length(finish: str, expected: str) -> None:
    answer = _answer(Start(), HERMES)
    answer.take(
        TextDelta(HERMES.write([("now", {})]) + "\n<tool_call>\n{"[: None if finish == "length" else -13])
    )
    answer.take(TextDelta(finish=finish))
    assert len(answer.calls) == 1 and answer.finish == expected


_FUNCTIONS = [
    Function(name="now"),
    Function(
        name="weather", parameters={"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
    ),
]
_CALLS: list[tuple[str, Any]] = [("weather", {"city": "Oslo", "days": 12}), ("now", {})]


def _called(answer: ChatAnswer) -> list[tuple[str, Any]]:
    return [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in answer.calls]


@pytest.mark.parametrize("with_schema", [False, True])
@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_cut_off_answer_has_whole_calls_only_and_equals_its_stream(
    form: ToolFormat, with_schema: bool
) -> None:
    """`with_schema`: the answer is calls or JSON of a schema, see `ChatPlan.exclusive`."""
    form = form.bound(_FUNCTIONS)
    calls = _CALLS[:1] if form.name in ("llama3", "harmony") else _CALLS
    start = Start(channels=form.name == "harmony")
    exclusive = frozenset(name for name, _ in _CALLS) if with_schema else None
    text = form.write(calls)
    for end in range(len(text) + 1):
        whole, streamed = _answer(start, form, exclusive), _answer(start, form, exclusive)
        whole.take(TextDelta(text[:end], finish="length"))
        deltas = [*map(TextDelta, text[:end]), TextDelta(finish="length")]
        parts = [part for delta in deltas for part in streamed.take(delta).parts]
        assert whole.finish == streamed.finish == "length"
        assert _called(whole) == _called(streamed) == calls[: len(whole.calls)]
        assert len(whole.calls) == sum(isinstance(part, Call) for part in parts)
        texts = "".join(part.text for part in parts if isinstance(part, TextChunk))
        assert texts == whole.content == streamed.content
    assert _called(whole) == calls and not whole.content
