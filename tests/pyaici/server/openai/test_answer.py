"""Answers of chats whose controller thinks better of what it has written."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyaici.server.openai.answer import ChatAnswer
from pyaici.server.openai.grammar import Reasoning, Start
from pyaici.server.openai.tool_format import HERMES, ToolFormat
from pyaici.server.speech import Said, SaidToken


def _answer(start: Start, form: ToolFormat | None = None) -> ChatAnswer:
    plan: Any = SimpleNamespace(start=start, form=form)  # the rest of a plan is about the prompt
    return ChatAnswer(plan)


def _put_together(answer: ChatAnswer, all_said: list[Said]) -> dict[str, str]:
    """What a client has in the end who reads a stream."""
    texts = {"reasoning": "", "content": ""}
    for said in all_said:
        news = answer.take(said)
        for kind, count in (("reasoning", news.retracted_reasoning), ("content", news.retracted)):
            assert count <= len(texts[kind])
            texts[kind] = texts[kind][: len(texts[kind]) - count]
        for part in news.parts:
            texts[part.kind] += part.text  # type: ignore[union-attr]
    return texts


@pytest.mark.parametrize(
    ("start", "said", "reasoning", "content"),
    [
        (Start(), [Said("one"), Said("wo", retracted=2), Said(finish="stop")], "", "owo"),
        # what was content has become reasoning, and the other way round
        (
            Start(Reasoning()),
            [Said("<think>a</think>b"), Said(" c", retracted=9), Said("</think>d", finish="stop")],
            "a c",
            "d",
        ),
        (Start(Reasoning()), [Said("<think>ab"), Said("x", retracted=9), Said(finish="stop")], "", "x"),
        (
            Start(Reasoning(), open=True),
            [Said("a</think>b"), Said("c", retracted=10, finish="stop")],
            "c",
            "",
        ),
        (Start(Reasoning()), [Said("x"), Said("<think>y</think>z", retracted=1, finish="stop")], "y", "z"),
        # only what is held back goes
        (Start(Reasoning()), [Said("<think>a</thi"), Said("b", retracted=5), Said(finish="stop")], "ab", ""),
    ],
)
def test_what_is_taken_back_is_read_again(
    start: Start, said: list[Said], reasoning: str, content: str
) -> None:
    answer = _answer(start)
    assert _put_together(answer, said) == {"reasoning": reasoning, "content": content}
    assert (answer.reasoning, answer.content, answer.finish) == (reasoning, content, "stop")


@given(st.lists(st.tuples(st.integers(0, 9), st.text("a<>/think ", max_size=9)), max_size=8), st.booleans())
def test_a_stream_puts_together_what_a_whole_answer_has(steps: list[tuple[int, str]], opened: bool) -> None:
    answer, raw, all_said = _answer(Start(Reasoning(), open=opened)), "", []
    for count, text in steps:
        count = min(count, len(raw))
        raw = raw[: len(raw) - count] + text
        all_said.append(Said(text, retracted=count))
    found = _put_together(answer, [*all_said, Said(finish="stop")])
    whole = _answer(Start(Reasoning(), open=opened))
    whole.take(Said(raw, finish="stop"))
    assert found == {"reasoning": answer.reasoning, "content": answer.content}
    assert (answer.reasoning, answer.content) == (whole.reasoning, whole.content)


def test_tokens_that_are_taken_back_go() -> None:
    answer = _answer(Start(Reasoning()))
    tokens = [SaidToken(number, number) for number in range(5)]
    answer.take(Said("<think>ab", tokens=tokens[:3]))
    answer.take(Said("", retracted=1, tokens=tokens[3:], retracted_tokens=2))
    assert [token.token for token in answer.tokens] == [0, 3, 4]


@pytest.mark.parametrize(("finish", "expected"), [("stop", "tool_calls"), ("length", "length")])
def test_calls_that_are_cut_off_are_said_to_be(finish: str, expected: str) -> None:
    answer = _answer(Start(), HERMES)
    answer.take(Said(HERMES.write([("now", {})]) + "\n<tool_call>\n{"[: None if finish == "length" else -13]))
    answer.take(Said(finish=finish))
    assert len(answer.calls) == 1 and answer.finish == expected
