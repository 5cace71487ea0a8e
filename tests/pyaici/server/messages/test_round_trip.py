"""Calls of random tools are accepted by the grammar and read again unchanged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lab.oracles.grammars.walk import Controller
from pyaici.engines.engine import FinishReason
from pyaici.server.answers.reader import open_reader
from pyaici.server.apis.messages import Answer, Plan, Usage, plan
from pyaici.server.apis.messages.plan import written_calls
from pyaici.server.apis.messages.requests import ToolUseBlock
from tests.pyaici.server.messages.bodies import request, tool
from tests.thorough import cases as number_of_cases

Make = Callable[[Plan], Controller]

#: pieces that resemble markers, or need escaping
PIECES = [
    "<",
    ">",
    "</parameter",
    "</invoke>",
    "<think>",
    '"',
    "'",
    "\\",
    "\n",
    " ",
    "]]",
    "{",
    "a",
    "é",
    "😀",
    "\t",
]
texts = st.lists(st.sampled_from(PIECES) | st.characters(exclude_categories=["Cs"]), max_size=6).map("".join)


def can_be_plain(value: Any) -> bool:
    """Tells whether a string can be written without quotes: the first end marker would end it."""
    return not (isinstance(value, str) and "</parameter>" in value)


plain_texts = texts.filter(can_be_plain)
names = st.text("abcxyz_- .'\\/~%é0", min_size=1, max_size=5)

Kind = tuple[dict[str, Any], st.SearchStrategy[Any]]


def enumeration(values: list[str]) -> Kind:
    return {"type": "string", "enum": values}, st.sampled_from(values)


def array(kind: Kind) -> Kind:
    return {"type": "array", "items": kind[0], "maxItems": 3}, st.lists(kind[1], max_size=3)


def either(kinds: list[Kind]) -> Kind:
    return {"anyOf": [kind[0] for kind in kinds]}, st.one_of(*(kind[1] for kind in kinds))


def record(kinds: dict[str, Kind]) -> Kind:
    schema = {"properties": {name: kind[0] for name, kind in kinds.items()}, "required": list(kinds)}
    closed = {"type": "object", **schema, "additionalProperties": False}
    values = st.fixed_dictionaries({name: kind[1] for name, kind in kinds.items()})
    # in the order of the schema
    return closed, values.map(lambda found: {name: found[name] for name in kinds})


scalars: st.SearchStrategy[Kind] = st.sampled_from(
    [
        ({"type": "string"}, texts),
        ({"type": "integer"}, st.integers(-(10**20), 10**20)),
        ({"type": "integer", "minimum": -5, "maximum": 12}, st.integers(-5, 12)),
        ({"type": "boolean"}, st.booleans()),
        ({"type": "null"}, st.none()),
        ({"type": "number"}, st.integers(-999, 999).map(lambda n: n / 8)),
        ({"type": ["string", "null"]}, texts | st.none()),
        ({"$ref": "#/$defs/color"}, st.sampled_from(["red", "green"])),
        ({"const": {"a": [1, "b"]}}, st.just({"a": [1, "b"]})),
    ]
)
kinds: st.SearchStrategy[Kind] = st.recursive(
    scalars,
    lambda inner: (
        inner.map(array)
        | st.lists(inner, min_size=2, max_size=3).map(either)
        | st.dictionaries(names, inner, max_size=3).map(record)
    ),
    max_leaves=4,
)
#: strings that are whole arguments are written without quotes
arguments: st.SearchStrategy[Kind] = (
    st.sampled_from([({"type": "string"}, plain_texts), ({"type": "string", "maxLength": 90}, plain_texts)])
    | st.lists(plain_texts, min_size=1, max_size=3, unique=True).map(enumeration)
    | kinds.map(lambda kind: (kind[0], kind[1].filter(can_be_plain)))
)
ROOT = {"$defs": {"color": {"type": "string", "enum": ["red", "green"]}}}


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[ToolUseBlock]]:
    """Draws tools, and calls with some of the optional arguments."""
    tools, calls = [], list[ToolUseBlock]()
    for i in range(draw(st.integers(1, 3))):
        found = draw(st.dictionaries(names, arguments, max_size=4))
        required = [name for name in found if draw(st.booleans())]
        properties = {name: schema for name, (schema, _) in found.items()}
        tools.append(
            tool(f"tool-{i}", {"type": "object", "properties": properties, "required": required, **ROOT})
        )
        for _ in range(draw(st.integers(0 if i else 1, 2))):
            given = {
                name: draw(of) for name, (_, of) in found.items() if name in required or draw(st.booleans())
            }
            calls.append(ToolUseBlock(type="tool_use", id="", name=f"tool-{i}", input=given))
    return tools, calls


@settings(max_examples=number_of_cases(20, 80), deadline=None, suppress_health_check=list(HealthCheck))
@given(case=cases(), before=st.sampled_from(["", "I look.\n", "<think>a</think>\n"]), data=st.data())
def test_calls_are_accepted_and_read_again(
    grammar: Make, case: tuple[list[dict[str, Any]], list[ToolUseBlock]], before: str, data: st.DataObject
) -> None:
    tools, calls = case
    made = plan(request(tools=tools, bnf_validation="schema_aware"))
    text = before + written_calls(made.request).write([(call.name, call.input) for call in calls])
    controller = grammar(made)
    assert controller.accepts(text), text
    assert controller.after(text.replace("</ai00:function_calls>", "")) is not None
    assert not controller.accepts(text.replace("    <parameter", "   <parameter")) or "<parameter" not in text

    answer, reader = Answer(made, model="m"), open_reader(made.answer)
    events = answer.start_message(1)
    at = 0
    while at < len(text):
        size = data.draw(st.integers(1, 40))
        events += answer.add(reader.feed(text[at : at + size]))
        at += size
    assert reader.over
    events += answer.finish(FinishReason.STOP, Usage(1, 2))
    message = answer.message()
    read = [(block["name"], block["input"]) for block in message["content"] if block["type"] == "tool_use"]
    assert read == [(call.name, call.input) for call in calls]
    assert [list(given) for _, given in read] == [list(call.input) for call in calls]
    assert message["stop_reason"] == "tool_use"
