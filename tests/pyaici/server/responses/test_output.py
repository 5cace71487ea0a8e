"""Items and events of responses, from the deltas of answers."""

from __future__ import annotations

from typing import Any

import pytest

from pyaici.server.answers.formats import Function
from pyaici.server.answers.known_formats import HERMES
from pyaici.server.answers.plan import AnswerPlan, Marks, Start
from pyaici.server.answers.reader import open_reader
from pyaici.server.answers.text import TextDelta, TextToken
from pyaici.server.apis.responses.output import Output

_CALL = '<tool_call>\n{"name": "now", "arguments": {"zone": "CET"}}\n</tool_call>'
_FUNCTIONS = (Function("now", {"properties": {"zone": {"type": "string"}}}),)


class _Streamed:
    """An output, and all events that a client has received."""

    def __init__(self, *, tools: bool = False, lists: bool = False) -> None:
        form = HERMES.bound(_FUNCTIONS) if tools else None
        self.reader = open_reader(AnswerPlan(Start(Marks()), form, _FUNCTIONS if tools else ()))
        entries = (
            (lambda tokens: [{"token": each.token, "top_logprobs": []} for each in tokens]) if lists else None
        )
        self.output = Output(self.reader, entries)
        self.reports: list[dict[str, Any]] = []

    def take(self, text: str, *, backtrack: int = 0, last: bool = False, **fields: Any) -> None:
        events = (self.reader.cut(backtrack) if backtrack else []) + self.reader.feed(text)
        events += self.reader.end() if last else []
        delta = TextDelta(text, backtrack, events, bool(backtrack), grown=len(text), **fields)
        self.reports += self.output.add_delta(delta)
        if last:
            self.reports += self.output.end(cut=False)

    def received(self) -> list[tuple[str, str]]:
        """Returns the items that a client puts together from the deltas: (type, text)."""
        items: list[list[str]] = []
        for report in self.reports:
            if report["type"] == "response.output_item.added":
                items.append([report["item"]["type"], ""])
            elif report["type"].endswith(".delta"):
                item = items[report["output_index"]]
                item[1] = item[1][: len(item[1]) - report.get("backtrack", 0)] + report["delta"]
        return [(kind, text) for kind, text in items]


def _texts(items: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [
        (item["type"], item["arguments"] if "arguments" in item else item["content"][0]["text"])
        for item in items
    ]


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_reasoning_text_and_calls_are_items_in_order(step: int) -> None:
    text = f"<think>So.</think> First this. {_CALL}{_CALL} Then that."
    streamed = _Streamed(tools=True)
    pieces = [text[at : at + step] for at in range(0, len(text), step)]
    for number, piece in enumerate(pieces):
        streamed.take(piece, last=number == len(pieces) - 1)
    call = ("function_call", '{"zone": "CET"}')
    expected = [("reasoning", "So."), ("message", "First this."), call, call, ("message", "Then that.")]
    assert streamed.received() == _texts(streamed.output.wire()) == expected
    assert {item["status"] for item in streamed.output.wire()} == {"completed"}
    assert streamed.output.reasoning_tokens == {1: 12, 3: 12, 1000: 0}[step], "a step counts as a whole"
    assert streamed.output.tokens == len(text)


def test_output_without_text_is_an_empty_message() -> None:
    streamed = _Streamed()
    streamed.take("", last=True)
    assert streamed.received() == _texts(streamed.output.wire()) == [("message", "")]


def test_backtracking_drops_text_of_all_items() -> None:
    streamed = _Streamed()
    for text, backtrack in (("<think>a b</think>", 0), ("one two", 0), ("three", 3), (" x</think>four", 17)):
        streamed.take(text, backtrack=backtrack)
        assert "".join(text for kind, text in streamed.received() if kind == "message") == "".join(
            text for kind, text in _texts(_ended(streamed)) if kind == "message"
        )
    streamed.take("", last=True)
    assert streamed.received() == _texts(streamed.output.wire())
    assert any("backtrack" in report for report in streamed.reports)


def _ended(streamed: _Streamed) -> list[dict[str, Any]]:
    """Returns the items with their texts, which open items do not show."""
    return [
        {**item.wire(), "content": [item.part()]}  # type: ignore[union-attr]
        for item in streamed.output._items
    ]


def test_tokens_of_reasoning_are_not_listed() -> None:
    streamed = _Streamed(lists=True)
    tokens = [TextToken(number, 0, -1.0) for number in range(5)]
    streamed.take("<think>a", tokens=tokens[:1])
    streamed.take("</think>", tokens=tokens[1:2])
    streamed.take("b", tokens=tokens[2:3])
    streamed.take("cd", tokens=tokens[3:])
    streamed.take("e", backtrack=1, tokens=[TextToken(9, 0)], backtrack_tokens=1, last=True)
    (_, message) = streamed.output.wire()
    assert message["content"][0]["text"] == "bce"
    assert [entry["token"] for entry in message["content"][0]["logprobs"]] == [2, 3, 9]
