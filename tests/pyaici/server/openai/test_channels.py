"""Answers in channels, as gpt-oss writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.oracles.grammars.vocabularies import byte_vocab
from lab.oracles.grammars.walk import Controller
from lab.runners.host import Host
from pyaici.bundled import find_controller
from pyaici.server.apis.openai.channels import ANALYSIS, END, FINAL, NEXT, ChannelReader
from pyaici.server.apis.openai.chat_plan import ChatPlan, plan_chat
from pyaici.server.apis.openai.grammar import Reasoning, Start, schema_grammar, tool_grammar
from pyaici.server.apis.openai.reader import Call, Part, TextChunk
from pyaici.server.apis.openai.requests import ChatRequest, Function
from pyaici.server.apis.openai.tool_formats import HARMONY
from pyaici.server.apis.stops import Stops
from pyaici.server.http.users import Role, User
from pyaici.tokens.markup import markup
from tests.pyaici.server.openai.byte_model import byte_model
from tests.pyaici.server.openai.templates import TEMPLATES

CHANNELS = Start(Reasoning(ANALYSIS, END), channels=True)
CITY = {"type": "object", "properties": {"city": {"enum": ["Oslo"]}}, "required": ["city"]}
FUNCTIONS = [Function(name="weather", parameters={**CITY, "additionalProperties": False})]
CALL = HARMONY.write([("weather", {"city": "Oslo"})])
THOUGHT = f"{ANALYSIS}Where?{END}{NEXT}"


def _read(pieces: list[str], start: Start = CHANNELS, tools: bool = True) -> list[Part]:
    """Returns all parts, with consecutive texts of one kind joined."""
    reader = ChannelReader(start, HARMONY if tools else None)
    parts: list[Part] = []
    for part in [part for piece in pieces for part in reader.feed(piece)] + reader.end():
        last = parts[-1] if parts else None
        if isinstance(part, TextChunk) and isinstance(last, TextChunk) and part.kind == last.kind:
            parts[-1] = TextChunk(part.kind, last.text + part.text)
        else:
            parts.append(part)
    assert reader.calls == sum(isinstance(part, Call) for part in parts)
    return parts


ANSWERS: list[tuple[str, list[Part]]] = [
    (f"{THOUGHT}{FINAL}Hi.", [TextChunk("reasoning", "Where?"), TextChunk("content", "Hi.")]),
    (f"{FINAL}Hi.", [TextChunk("content", "Hi.")]),
    (f"{THOUGHT}{CALL}", [TextChunk("reasoning", "Where?"), Call("weather", '{"city": "Oslo"}')]),
    (CALL, [Call("weather", '{"city": "Oslo"}')]),
    # the recipient in front of the channel, as in templates
    (
        f' to=functions.now<|channel|>commentary json<|message|>{{"a": "{END}"}}',
        [Call("now", f'{{"a": "{END}"}}')],
    ),
    # a preamble for the user, then more reasoning, then a call
    (
        f"<|channel|>commentary<|message|>I look.{END}{NEXT}{THOUGHT}{CALL}",
        [
            TextChunk("content", "I look."),
            TextChunk("reasoning", "Where?"),
            Call("weather", '{"city": "Oslo"}'),
        ],
    ),
    (
        f"{THOUGHT}{THOUGHT}{FINAL}Hi{END}{NEXT}{FINAL}there",
        [TextChunk("reasoning", "Where?\n\nWhere?"), TextChunk("content", "Hi\n\nthere")],
    ),
    # cut off
    (f"{ANALYSIS}Wh", [TextChunk("reasoning", "Wh")]),
    (f"{THOUGHT}<|channel|>fin", [TextChunk("reasoning", "Where?")]),
    ("<|chan", [TextChunk("content", "<|chan")]),
    (CALL[:-3], [TextChunk("content", '<|channel|>commentary to=functions.weather {"city": "Osl')]),
    # no header
    ("Hi.", [TextChunk("content", "Hi.")]),
    ("", []),
]  # fmt: skip


@pytest.mark.parametrize(("text", "parts"), ANSWERS)
def test_answers_are_split_into_parts(text: str, parts: list[Part]) -> None:
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
    assert _read(["<|chan", "x"], Start(open=True, channels=True)) == [TextChunk("content", "<|chanx")]


@pytest.fixture(scope="module")
def lark() -> Iterator[Callable[[str], Controller]]:
    with Host() as host:
        program, vocab = host.compile(find_controller("lark").read_bytes()), byte_vocab()
        yield lambda grammar: Controller(program, vocab, grammar)


def test_grammar_of_tools(lark: Callable[[str], Controller]) -> None:
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
        controller = lark(tool_grammar(FUNCTIONS, HARMONY, CHANNELS, parallel=True, **arguments))
        assert {name for name, text in texts.items() if controller.accepts(text)} == allowed
    controller = lark(schema_grammar('{"type": "object"}', CHANNELS))
    assert {name for name, text in texts.items() if controller.accepts(text)} == {"json"}
    assert controller.accepts(f"{THOUGHT}{FINAL}{{}}")
    after = lark(schema_grammar('{"type": "object"}', Start(channels=True)))
    assert after.accepts(f"{FINAL}{{}}") and not after.accepts(f"{THOUGHT}{FINAL}{{}}")


def _plan(**body: Any) -> tuple[ChatPlan, str]:
    model = byte_model(TEMPLATES["gpt-oss"])
    request = ChatRequest.model_validate({"messages": [{"role": "user", "content": "Hi"}], **body})
    plan = plan_chat(model, request, User("eve", Role.RUN))
    return plan, model.tokenizer.decode(plan.job.prompt)


def test_constraints_for_the_whole_answer_begin_in_the_final_channel() -> None:
    plan, prompt = _plan(regex="[0-9]")
    assert prompt.endswith(NEXT + FINAL) and plan.start == Start(open=True, channels=True)
    for body in ({"json_schema": {}}, {}):
        plan, prompt = _plan(**body)
        assert prompt.endswith(NEXT) and plan.start == CHANNELS


def test_forced_end_of_reasoning_begins_the_next_message() -> None:
    plan, prompt = _plan(json_schema={}, thinking_token_budget=3, reasoning_effort="low")
    limit = plan.limit
    assert "Reasoning: low" in prompt and limit is not None
    assert limit.exceeded(ANALYSIS + "Wh", 3) and not limit.exceeded(THOUGHT, 9)
    assert not limit.exceeded(FINAL, 9)
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
    for step in (1, len(text)):
        stops = Stops(["stop", "final", "assistant"], plan.protected)
        found = None
        for at in range(step, len(text) + 1, step):
            found = found or stops.find(text[:at], last=at == len(text))
        assert found == (None if end is None else (text.rindex(end), end))


def test_marks_are_text_only_for_such_a_tokenizer() -> None:
    marks = {"<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>"}
    assert markup([*marks, "<|call|>", "<|return|>"]) == marks
    assert markup(marks - {"<|constrain|>"}) == set()
