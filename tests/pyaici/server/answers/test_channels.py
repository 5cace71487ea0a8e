"""Answers in channels, as gpt-oss writes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.oracles.grammars.vocabularies import byte_vocab
from lab.oracles.grammars.walk import Controller
from lab.runners.host import Host
from pyaici.bundled import find_controller
from pyaici.server.answers.calls import Call
from pyaici.server.answers.formats import Function
from pyaici.server.answers.grammar import answer_grammar
from pyaici.server.answers.known_formats import HARMONY
from pyaici.server.answers.plan import ANALYSIS, END, FINAL, NEXT, AnswerPlan, Marks, Start
from pyaici.server.answers.reader import Event, Reasoning, Text, open_reader
from pyaici.server.answers.stops import Stop
from pyaici.server.apis.openai.chat_plan import ChatPlan, plan_chat
from pyaici.server.apis.openai.requests import ChatRequest
from pyaici.server.http.users import Role, User
from pyaici.tokens.tokenizer_json import markup
from tests.pyaici.server.answers.events import joined
from tests.pyaici.server.openai.byte_model import byte_model
from tests.pyaici.server.openai.templates import TEMPLATES

CHANNELS = Start(Marks(ANALYSIS, END), channels=True)
CITY = {"type": "object", "properties": {"city": {"enum": ["Oslo"]}}, "required": ["city"]}
FUNCTIONS = [Function(name="weather", parameters={**CITY, "additionalProperties": False})]
CALL = HARMONY.write([("weather", {"city": "Oslo"})])
THOUGHT = f"{ANALYSIS}Where?{END}{NEXT}"


def _call(name: str, arguments: str) -> Call:
    return Call(name, json.loads(arguments))


def _read(pieces: list[str], start: Start = CHANNELS, tools: bool = True) -> list[Event]:
    """Returns all events, with consecutive texts of one kind joined."""
    reader = open_reader(AnswerPlan(start, HARMONY if tools else None))
    events = joined([event for piece in pieces for event in reader.feed(piece)] + reader.end())
    assert reader.calls == sum(isinstance(event, Call) for event in events)
    return events


ANSWERS: list[tuple[str, list[Event]]] = [
    (f"{THOUGHT}{FINAL}Hi.", [Reasoning("Where?"), Text("Hi.")]),
    (f"{FINAL}Hi.", [Text("Hi.")]),
    (f"{THOUGHT}{CALL}", [Reasoning("Where?"), _call("weather", '{"city": "Oslo"}')]),
    (CALL, [_call("weather", '{"city": "Oslo"}')]),
    # the recipient in front of the channel, as in templates
    (
        f' to=functions.now<|channel|>commentary json<|message|>{{"a": "{END}"}}',
        [Call("now", {"a": END})],
    ),
    # a preamble for the user, then more reasoning, then a call
    (
        f"<|channel|>commentary<|message|>I look.{END}{NEXT}{THOUGHT}{CALL}",
        [
            Text("I look."),
            Reasoning("Where?"),
            _call("weather", '{"city": "Oslo"}'),
        ],
    ),
    (
        f"{THOUGHT}{THOUGHT}{FINAL}Hi{END}{NEXT}{FINAL}there",
        [Reasoning("Where?\n\nWhere?"), Text("Hi\n\nthere")],
    ),
    # cut off
    (f"{ANALYSIS}Wh", [Reasoning("Wh")]),
    (f"{THOUGHT}<|channel|>fin", [Reasoning("Where?")]),
    ("<|chan", [Text("<|chan")]),
    (CALL[:-3], [Text('<|channel|>commentary to=functions.weather {"city": "Osl')]),
    # no header
    ("Hi.", [Text("Hi.")]),
    ("", []),
]  # fmt: skip


@pytest.mark.parametrize(("text", "parts"), ANSWERS)
def test_answers_are_split_into_parts(text: str, parts: list[Event]) -> None:
    assert _read([text]) == parts
    assert _read(list(text)) == parts
    for at in range(len(text)):
        assert _read([text[:at], text[at:]]) == parts


@given(
    st.lists(
        st.sampled_from(
            [ANALYSIS, FINAL, END, NEXT, CALL, "<|", "|>", " to=", "{}", "x", "\n", "<|message|>"]
        ),
        max_size=8,
    ),
    st.booleans(),
)
def test_parts_do_not_depend_on_the_pieces(texts: list[str], tools: bool) -> None:
    text = "".join(texts)
    whole = _read([text], tools=tools)
    assert _read(list(text), tools=tools) == whole == _read(texts, tools=tools)


def test_answer_of_a_prompt_with_a_header_is_content() -> None:
    assert _read(["<|chan", "x"], Start(open=True, channels=True)) == [Text("<|chanx")]


@pytest.fixture(scope="module")
def kbnf() -> Iterator[Callable[[str], Controller]]:
    with Host() as host:
        program, vocab = host.compile(find_controller("kbnf").read_bytes()), byte_vocab()
        yield lambda grammar: Controller(program, vocab, grammar)


def test_grammar_of_tools(kbnf: Callable[[str], Controller]) -> None:
    texts = {
        "final": f"{FINAL}Hi.",
        "thought, final": f"{THOUGHT}{FINAL}Hi.",
        "call": CALL,
        "thought, call": f"{THOUGHT}{CALL}",
        "two": f"{CALL}{END}{NEXT}{CALL}",
        "json": f'{FINAL}{{"a": 1}}',
        "thought": f"{ANALYSIS}Where?",
        "wrong": HARMONY.write([("weather", {"city": "Rome"})]),
        "no header": "Hi.",
    }
    for settings, allowed in (
        ({"required": False}, {"final", "thought, final", "call", "thought, call", "json"}),
        ({"required": True}, {"call", "thought, call"}),
        ({"required": False, "schema": '{"type": "object"}'}, {"call", "thought, call", "json"}),
    ):
        arguments: dict[str, Any] = settings
        plan = AnswerPlan(CHANNELS, HARMONY, tuple(FUNCTIONS), **arguments)
        controller = kbnf(answer_grammar(plan).argument)
        assert {name for name, text in texts.items() if controller.accepts(text)} == allowed
    controller = kbnf(answer_grammar(AnswerPlan(CHANNELS, schema='{"type": "object"}')).argument)
    assert {name for name, text in texts.items() if controller.accepts(text)} == {"json"}
    assert controller.accepts(f"{THOUGHT}{FINAL}{{}}")
    after = kbnf(answer_grammar(AnswerPlan(Start(channels=True), schema='{"type": "object"}')).argument)
    assert after.accepts(f"{FINAL}{{}}") and not after.accepts(f"{THOUGHT}{FINAL}{{}}")


def _plan(**body: Any) -> tuple[ChatPlan, str]:
    model = byte_model(TEMPLATES["gpt-oss"])
    request = ChatRequest.model_validate({"messages": [{"role": "user", "content": "Hi"}], **body})
    plan = plan_chat(model, request, User("eve", Role.RUN))
    return plan, model.tokenizer.decode(plan.job.prompt)


def test_constraints_for_the_whole_answer_begin_in_the_final_channel() -> None:
    plan, prompt = _plan(regex="[0-9]")
    assert prompt.endswith(NEXT + FINAL) and plan.answer.start == Start(open=True, channels=True)
    for body in ({"json_schema": {}}, {}):
        plan, prompt = _plan(**body)
        assert prompt.endswith(NEXT) and plan.answer.start == CHANNELS


def test_forced_end_of_reasoning_begins_the_next_message() -> None:
    plan, prompt = _plan(json_schema={}, thinking_token_budget=3, reasoning_effort="low")
    limit = plan.limit
    assert "Reasoning: low" in prompt and limit is not None
    for text, reasons in ((ANALYSIS + "Wh", True), (THOUGHT, False), (FINAL, False)):
        reader = open_reader(plan.answer)
        reader.feed(text)
        assert reader.reasons == reasons
    assert limit.forced == END + NEXT
    assert limit.rest.controller is not None and ANALYSIS not in limit.rest.controller.arg


@pytest.mark.parametrize(
    ("text", "end"),
    [
        (f"{THOUGHT}{FINAL}a stop", "stop"),
        (f"{FINAL}a stop", "stop"),
        (f"{ANALYSIS}stop{END}{NEXT}{FINAL}final", "final"),
        (f"{THOUGHT}<|channel|>commentary to=functions.stop <|constrain|>json<|message|>{{}}", None),
        ("<|channel|>commentary to=functions.stop <|constrain|>json<|message|>{}", None),
    ],
)
def test_stop_strings_count_only_in_the_final_channel(text: str, end: str | None) -> None:
    function = {"name": "stop", "description": "Stops", "parameters": {"type": "object", "properties": {}}}
    plan, _ = _plan(tools=[{"type": "function", "function": function}])
    for pieces in (list(text), [text]):
        reader = open_reader(replace(plan.answer, stop=("stop", "final", "assistant")))
        events = [event for piece in pieces for event in reader.feed(piece)] + reader.end()
        assert [event.mark for event in events if isinstance(event, Stop)] == ([] if end is None else [end])


def test_marks_are_text_only_for_such_a_tokenizer() -> None:
    marks = {"<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>"}
    assert markup([*marks, "<|call|>", "<|return|>"]) == marks
    assert markup(marks - {"<|constrain|>"}) == set()
