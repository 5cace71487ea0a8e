"""Answers: their events, and the message built from them."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from pyaici.engines.engine import FinishReason
from pyaici.server.answers.reader import Text, open_reader
from pyaici.server.apis.messages import Answer, MessagesError, Usage, fold, plan
from pyaici.server.http import sse
from tests.pyaici.server.messages.bodies import THINKING, TOOLS, call, calls, request

END = "</ai00:assistant>"
TOKYO = calls(call("get_weather", ("location", "Tokyo")))


def answer(
    text: str, reason: FinishReason = FinishReason.STOP, **fields: Any
) -> tuple[Answer, list[dict[str, Any]]]:
    """Feeds the text in pieces of three characters; returns the answer and all events."""
    planned = plan(request(**fields), prompt_format="template")
    made, reader = Answer(planned, model="m", id="msg_1"), open_reader(planned.answer)
    events = made.start_message(7)
    for i in range(0, len(text), 3):
        events += made.add(reader.feed(text[i : i + 3]))
    reason = FinishReason.STOP if reader.over else reason
    return made, [*events, *made.add(reader.end()), *made.finish(reason, Usage(7, 5))]


def test_events_of_an_answer() -> None:
    made, events = answer(f"<think>Hm.</think>\nI look.\n{TOKYO}", tools=TOOLS, **THINKING)
    usage = {
        "input_tokens": 7,
        "output_tokens": 5,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
    }
    begin = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**usage, "output_tokens": 0},
    }
    assert events[:2] == [{"type": "message_start", "message": begin}, {"type": "ping"}]
    assert events[-2:] == [
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use", "stop_sequence": None},
            "usage": usage,
        },
        {"type": "message_stop"},
    ]
    signature = "sig_" + hashlib.sha256(b"Hm.").hexdigest()[:16]
    starts = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    tool_id = starts[2]["id"]
    assert starts == [
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "text", "text": ""},
        {"type": "tool_use", "id": tool_id, "name": "get_weather", "input": {}},
    ]
    assert events[-5:-2] == [
        {"type": "content_block_start", "index": 2, "content_block": starts[2]},
        {
            "type": "content_block_delta",
            "index": 2,
            "delta": {"type": "input_json_delta", "partial_json": '{"location": "Tokyo"}'},
        },
        {"type": "content_block_stop", "index": 2},
    ]
    assert made.message() == {
        **begin,
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": signature},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": tool_id, "name": "get_weather", "input": {"location": "Tokyo"}},
        ],
        "stop_reason": "tool_use",
        "usage": usage,
    }


@pytest.mark.parametrize("thinking", [{"type": "adaptive"}, THINKING["thinking"]])
def test_omitted_thinking_is_a_block_without_text(thinking: dict[str, Any]) -> None:
    fields = {"max_tokens": 2000, "thinking": {**thinking, "display": "omitted"}}
    made, events = answer("<think>Hm.</think>\nYes.", **fields)
    hidden, shown = made.message()["content"]
    assert hidden["thinking"] == "" and hidden["signature"].startswith("sig_") and shown["text"] == "Yes."
    assert "Hm" not in json.dumps(events)


def test_blocks_open_and_close_in_order() -> None:
    _, events = answer(f"a<think>b</think>c {calls(*[call('get_weather')] * 2)}", tools=TOOLS)
    open_block, index = None, -1
    for event in events:
        if event["type"] == "content_block_start":
            assert open_block is None and event["index"] == index + 1
            open_block = index = event["index"]
        elif event["type"].startswith("content_block"):
            assert event["index"] == open_block
            open_block = None if event["type"] == "content_block_stop" else open_block
    assert open_block is None and index == 4


@pytest.mark.parametrize(
    ("text", "reason", "fields", "expected"),
    [
        ("Hello", FinishReason.EOS, {}, ("end_turn", None)),
        ("Hello" + END, FinishReason.STOP, {"tools": TOOLS}, ("end_turn", None)),
        ("Hello" + END, FinishReason.CANCELLED, {}, ("end_turn", None)),
        ("Hello" + END, FinishReason.LENGTH, {}, ("end_turn", None)),
        ("Hello" + END, FinishReason.STOP, {"stop": [END, "x"]}, ("end_turn", None)),
        ("Hello\n\n", FinishReason.STOP, {"stop": [], "bnf_validation": "structural"}, ("end_turn", None)),
        ("Hello", FinishReason.LENGTH, {}, ("max_tokens", None)),
        ("Hello", FinishReason.WORK, {}, ("max_tokens", None)),
        ("Hello.", FinishReason.CANCELLED, {"stop": ["."]}, ("stop_sequence", ".")),
        ("Hello.", FinishReason.LENGTH, {"stop": ["o.", "."]}, ("stop_sequence", "o.")),
        (TOKYO, FinishReason.STOP, {"tools": TOOLS}, ("tool_use", None)),
        (TOKYO, FinishReason.LENGTH, {"tools": TOOLS}, ("tool_use", None)),
        (TOKYO[:-3], FinishReason.LENGTH, {"tools": TOOLS}, ("max_tokens", None)),
        (TOKYO[:-3], FinishReason.EOS, {"tools": TOOLS}, ("tool_use", None)),
        ("yes", FinishReason.STOP, {"bnf_schema": "start::='yes';"}, ("end_turn", None)),
        ("Hel", FinishReason.CANCELLED, {}, (None, None)),
    ],
)
def test_stop_reason_and_stop_sequence(
    text: str, reason: FinishReason, fields: Any, expected: tuple[Any, Any]
) -> None:
    made, _ = answer(text, reason, **fields)
    message = made.message()
    assert (message["stop_reason"], message["stop_sequence"]) == expected
    assert END not in json.dumps(message)


def test_ids_of_messages_and_calls_are_unique() -> None:
    made, _ = answer(calls(*[call("get_weather")] * 3), tools=TOOLS)
    other, _ = answer(TOKYO, tools=TOOLS)
    ids = [block["id"] for one in (made, other) for block in one.message()["content"]]
    assert len(set(ids)) == 4 and all(id.startswith("toolu_") for id in ids)
    named = [Answer(plan(request()), model="m").id for _ in range(2)]
    assert named[0] != named[1] and named[0].startswith("msg_")


def test_answer_begins_with_thinking_if_the_prompt_ends_in_it() -> None:
    planned = plan(request(**THINKING))
    made, reader = Answer(planned, model="m"), open_reader(planned.answer)
    made.start_message(1)
    made.add(reader.feed("a</think>b") + reader.end())
    made.finish(FinishReason.EOS, Usage(1, 1))
    assert [block["type"] for block in made.message()["content"]] == ["thinking", "text"]


def test_failed_answer_keeps_its_blocks_and_ends_with_an_error() -> None:
    made = Answer(plan(request()), model="m")
    events = [
        *made.start_message(1),
        *made.add([Text("Hello")]),
        *made.fail(MessagesError("api_error", "the engine stopped")),
    ]
    assert [event["type"] for event in events[2:]] == [
        *("content_block_start", "content_block_delta", "content_block_stop", "error")
    ]
    assert events[-1]["error"] == {"type": "api_error", "message": "the engine stopped"}
    with pytest.raises(MessagesError, match="the engine stopped") as caught:
        made.message()
    assert caught.value.status == 500


def test_events_survive_the_wire_format() -> None:
    made, events = answer("é\n\ndata: x" + END, tools=TOOLS)
    wire = b"".join(sse.event(data, data["type"]).encode() for data in events).decode()
    read = []
    for part in wire.removesuffix("\n\n").split("\n\n"):
        name, data = part.split("\n")
        read.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {read[-1]['type']}"
    assert read == events and fold(read) == made.message()
    assert made.message()["content"] == [{"type": "text", "text": "é\n\ndata: x"}]
