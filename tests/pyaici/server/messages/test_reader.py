"""Reads answers in pieces of any size: thinking, texts and calls."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from time import thread_time
from typing import Any

import pytest

from pyaici.engines.engine import FinishReason
from pyaici.server.answers.calls import Call
from pyaici.server.answers.formats import Function
from pyaici.server.answers.known_formats import AI00
from pyaici.server.answers.plan import AnswerPlan, Marks, Start
from pyaici.server.answers.reader import Reader, Text, open_reader
from pyaici.server.answers.stops import MarkerScanner, Stop
from pyaici.server.apis.messages import Answer, Usage, plan
from tests.pyaici.server.messages.bodies import TOOLS, call, calls, request, strings, tool

END = "</ai00:assistant>"
TOKYO = calls(call("get_weather", ("location", "Tokyo")))


def reader(
    *,
    tools: list[dict[str, Any]] = TOOLS,
    stop: Sequence[str] = (END,),
    inside: bool = False,
    json: bool = False,
    **fields: Any,
) -> Reader:
    functions = [Function(each["name"], each["input_schema"]) for each in tools]
    return open_reader(
        AnswerPlan(
            Start(Marks(), open=inside),
            AI00.bound(functions) if tools else None,
            tuple(functions),
            schema="{}" if json else None,
            stop=tuple(stop),
            reasons_again=True,
            **{"checked": False, **fields},
        )
    )


def read(made: Reader, pieces: Iterable[str]) -> list[tuple[str, Any]]:
    """Returns the parts of an answer: kinds with their texts, and tools with their arguments."""
    answer = Answer(plan(request()), model="m")
    answer.start_message(1)
    for piece in pieces:
        answer.add(made.feed(piece))
    answer.add(made.end())
    answer.finish(FinishReason.EOS, Usage(1, 1))
    return [
        (block["name"], block["input"])
        if block["type"] == "tool_use"
        else (block["type"], block[block["type"]])
        for block in answer.message()["content"]
    ]


def cuts(text: str) -> Iterable[Sequence[str]]:
    """Yields the text as a whole, as single characters, and in random pieces, some of them empty."""
    yield [text]
    yield list(text)
    rng = random.Random(text)
    for _ in range(8):
        at = sorted(rng.randrange(len(text) + 1) for _ in range(rng.randrange(1, 9)))
        yield [text[a:b] for a, b in zip([0, *at], [*at, len(text)], strict=True)]


CASES: list[tuple[str, list[tuple[str, Any]]]] = [
    ("Hello, how can I help you?\n" + END, [("text", "Hello, how can I help you?")]),
    (
        "<think>Let me see...</think>\nIt is 42.\n" + END,
        [("thinking", "Let me see..."), ("text", "It is 42.")],
    ),
    (TOKYO, [("get_weather", {"location": "Tokyo"})]),
    ("<think>So.</think>\n" + TOKYO, [("thinking", "So."), ("get_weather", {"location": "Tokyo"})]),
    ("I look.\n" + TOKYO, [("text", "I look."), ("get_weather", {"location": "Tokyo"})]),
    (
        calls(call("get_weather", ("city", "a")), call("web_search", ("query", "b"))),
        [("get_weather", {"city": "a"}), ("web_search", {"query": "b"})],
    ),
    (
        "prefix <think>reasoning</think>suffix",
        [("text", "prefix"), ("thinking", "reasoning"), ("text", "suffix")],
    ),
    ("<think></think> \n" + END, []),
    ("<think> \n </think>a", [("text", "a")]),
    (
        "a < b <thin </think> <ai00:function_call> c",
        [("text", "a < b <thin </think> <ai00:function_call> c")],
    ),
    (" a \n b \n ", [("text", "a \n b")]),
    ("a</ai00:assistant", [("text", "a</ai00:assistant")]),
    ("a" + END + "b" + END, [("text", "a")]),
    ("<think>a " + END + "</think>b", [("thinking", "a " + END), ("text", "b")]),
    ("<think>a <thi</thin</think>b", [("thinking", "a <thi</thin"), ("text", "b")]),
    ("<think>not closed", [("thinking", "not closed")]),
    ("", []),
    (
        calls(call("get_weather", ("city", "  2 < 3 </paramet>\n"), ("location", "42"))),
        [("get_weather", {"city": "  2 < 3 </paramet>\n", "location": "42"})],
    ),
    (calls(call("get_weather", ("city", ""))), [("get_weather", {"city": ""})]),
    (calls(call("unknown", ("n", "42"), ("s", "a b"))), [("unknown", {"n": 42, "s": "a b"})]),
    (calls(call("get_weather")), [("get_weather", {})]),
    (calls(), []),
    (TOKYO + " and more", [("get_weather", {"location": "Tokyo"})]),
    # texts of a model without a grammar
    (
        '<ai00:function_calls><invoke name="f"><parameter name="a">1</parameter></invoke>'
        "</ai00:function_calls>",
        [("f", {"a": 1})],
    ),
    ("<ai00:function_calls> sorry", [("text", "<ai00:function_calls> sorry")]),
    (TOKYO[:-30], [("text", TOKYO[:-30])]),
    (
        TOKYO.removesuffix("</ai00:function_calls>") + "  Wait" + END,
        [("get_weather", {"location": "Tokyo"}), ("text", "Wait")],
    ),
    (
        '<ai00:function_calls>\n  <invoke name="a"b">' + END,
        [("text", '<ai00:function_calls>\n  <invoke name="a"b">')],
    ),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_answers_are_split_into_parts(text: str, expected: list[tuple[str, Any]]) -> None:
    for pieces in cuts(text):
        assert read(reader(), pieces) == expected


def test_answer_that_begins_within_thinking() -> None:
    for pieces in cuts("thinking</think>response" + END):
        assert read(reader(inside=True), pieces) == [("thinking", "thinking"), ("text", "response")]


def test_json_may_contain_markers() -> None:
    for text in ('{"a": "<think>b</think>"}', f'\n{{"a": "{AI00.begin}{END}"}}', "1", '"<think>"'):
        for pieces in cuts(text):
            assert read(reader(json=True, stop=[]), pieces) == [("text", text.strip())]
    for pieces in cuts('<think>a</think>\n{"a": "<think>"}'):
        parts = [("thinking", "a"), ("text", '{"a": "<think>"}')]
        assert read(reader(json=True, stop=[]), pieces) == parts
    for pieces in cuts(TOKYO):
        assert read(reader(json=True, stop=[]), pieces) == [("get_weather", {"location": "Tokyo"})]
    for pieces in cuts('{"a": "b stop"}'):
        assert read(reader(json=True, stop=["stop"]), pieces) == [("text", '{"a": "b')]


def test_without_tools_call_markers_are_text() -> None:
    for pieces in cuts(TOKYO + END):
        assert read(reader(tools=[]), pieces) == [("text", TOKYO)]


@pytest.mark.parametrize(
    ("stops", "text", "expected", "by"),
    [
        (["\n\n"], "a\n\nb", "a", "\n\n"),
        (["abc", "b"], "xabc", "xa", "b"),
        (["b", "ab"], "xab", "x", "ab"),
        (["aab"], "aaab", "a", "aab"),
        (["stop", "</"], "a<stop", "a<", "stop"),
        (["é😀"], "aé😀", "a", "é😀"),
        ([], "a", "a", None),
    ],
)
def test_first_stop_string_ends_the_text(stops: list[str], text: str, expected: str, by: str | None) -> None:
    """The stop string that ends first counts; of several that end there, the longest."""
    for pieces in cuts(text):
        made = reader(stop=stops)
        assert read(made, pieces) == [("text", expected)] and (made.stop and made.stop.mark) == by


def test_blanks_after_thinking_are_not_stop_strings() -> None:
    for pieces in cuts("<think>a\n\nb</think>\n\n\n\nc\nd\n\ne"):
        made = reader(stop=["\n\n"])
        assert read(made, pieces) == [("thinking", "a\n\nb"), ("text", "c\nd")] and made.stop == Stop("\n\n")
    for pieces in cuts("<think>a</think>\n\nUser: b"):
        made = reader(stop=["\n\n", "\n\nUser:"])
        assert read(made, pieces) == [("thinking", "a")] and made.stop == Stop("\n\nUser:")


def test_answer_is_over_exactly_at_its_end() -> None:
    for text in ("a" + END, TOKYO):
        made = reader()
        for i, c in enumerate(text):
            assert not made.over, text[:i]
            made.feed(c)
        assert made.over and made.feed("more") == []


def test_text_is_held_back_only_while_undecided() -> None:
    made = reader()
    assert made.feed("Hello <t") == [Text("Hello")]
    assert made.feed("able>") == [Text(" <table>")]
    assert made.feed("</ai00:assis") == []
    assert made.feed("tance>") == [Text("</ai00:assistance>")]


def test_checked_json_values_may_contain_the_end_marker() -> None:
    schema = {"properties": {"a": {"type": "array"}, "s": {"type": "string"}}}
    value = '["</parameter>\\n", "\\"</parameter>", "\\\\"]'
    text = calls(call("f", ("a", value), ("s", '"')))
    expected = [("f", {"a": ["</parameter>\n", '"</parameter>', "\\"], "s": '"'})]
    for pieces in cuts(text):
        assert read(reader(tools=[tool("f", schema)], checked=True), pieces) == expected


def test_calls_are_reported_as_soon_as_they_end() -> None:
    made = reader()
    first = call("get_weather", ("city", "a"))
    assert made.feed("<ai00:function_calls>\n" + first) == [Call("get_weather", {"city": "a"})]
    assert made.feed(first[:-1]) == [Call("get_weather", {"city": "a"})]


def test_long_values_in_small_pieces() -> None:
    made = reader(
        tools=[tool("f", {"properties": {"a": {"type": "array"}, "s": {"type": "string"}}})], checked=True
    )
    text = calls(call("f", ("a", '["' + "x" * 50_000 + '"]'), ("s", "y" * 50_000)))
    pieces = [text[i : i + 50] for i in range(0, len(text), 50)]
    ((name, found),) = read(made, pieces)
    assert name == "f" and len(found["a"][0]) == len(found["s"]) == 50_000


def test_marker_scanner() -> None:
    marks = MarkerScanner(["abc", "b", "ca"])
    assert marks.find("xx") is None and marks.find("xabc") == (2, "b") and marks.find("bca") == (0, "b")
    assert [marks.held(text) for text in ("x", "xa", "xc", "xac", "")] == [0, 1, 1, 1, 0]
    assert marks.find("bca", 1) == (1, "ca") and marks.find("bca", 3) is None
    assert MarkerScanner([]).find("abc") is None and MarkerScanner([]).held("abc") == 0
    assert strings("a")["required"] == ["a"]


def test_markers_of_calls_cost_little_beside_a_large_schema() -> None:
    """The event loop reads the answer, and a grammar may force any number of these markers."""
    large = tool("large", {"type": "object", "properties": {f"p{number}": True for number in range(8000)}})
    made = reader(tools=[large])
    start = thread_time()
    for _ in range(200):
        made.feed("<ai00:function_calls>x ")
    assert thread_time() - start < 1  # milliseconds; it took 4 s
