"""Grammars of tools and reasoning: the answers that they allow, and how answers are read."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.oracles.grammars.vocabularies import byte_vocab
from lab.oracles.grammars.walk import Controller
from lab.runners.host import Host
from pyaici.bundled import find_controller
from pyaici.server.answers.calls import Call
from pyaici.server.answers.formats import CallFormat, Function
from pyaici.server.answers.grammar import answer_grammar
from pyaici.server.answers.known_formats import (
    COMMAND_R,
    COMMAND_R7B,
    DEEPSEEK_V3,
    DEEPSEEK_V31,
    FORMATS,
    GLM4,
    HERMES,
    LLAMA3,
    MISTRAL,
    MISTRAL_ARGS,
    PYTHONIC,
    QWEN3_CODER,
    SMOLLM2,
)
from pyaici.server.answers.plan import AnswerPlan, Marks, Start
from pyaici.server.answers.reader import Event, Reasoning, Text, open_reader
from tests.pyaici.server.answers.events import joined
from tests.thorough import cases

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
FUNCTIONS = [Function(name="weather", parameters=CITY), Function(name="now")]
FREE, THINKS, OPEN = Start(), Start(Marks()), Start(Marks(), open=True)


@pytest.fixture(scope="module")
def kbnf() -> Iterator[Callable[[str], Controller]]:
    """Returns a function that starts the controller kbnf with an argument."""
    with Host() as host:
        program, vocab = host.compile(find_controller("kbnf").read_bytes()), byte_vocab()
        yield lambda grammar: Controller(program, vocab, grammar)


def _call(name: str, arguments: str) -> Call:
    return Call(name, json.loads(arguments))


def _argument(functions: Sequence[Function], form: CallFormat, start: Start = FREE, **options: Any) -> str:
    plan = AnswerPlan(start, form.bound(functions), tuple(functions), **options)
    return answer_grammar(plan).argument


def _read(form: CallFormat | None, start: Start, pieces: list[str], schema: str | None = None) -> list[Event]:
    """Returns all events, with consecutive texts of one kind joined."""
    reader = open_reader(AnswerPlan(start, form, tuple(FUNCTIONS), schema=schema))
    return joined([event for piece in pieces for event in reader.feed(piece)] + reader.end())


def _texts(form: CallFormat) -> dict[str, str]:
    one = form.write([("weather", {"city": "Oslo"})])
    return {
        "words": "Hello.",
        "call": one,
        "words and call": f"I will look. {one}",
        "two": form.write([("weather", {"city": "Oslo"}), ("now", {})]),
        "unknown tool": form.write([("whether", {"city": "Oslo"})]),
        "blank and unknown tool": " \n" + form.write([("whether", {"city": "Oslo"})]),
        "wrong argument": form.write([("weather", {"town": "Oslo"})]),
        "missing argument": form.write([("weather", {})]),
        "not closed": one[: -len(form.end)] if form.end else one[:-1],
        "thought and call": f"<think>where?</think>\n{one}",
        "end of thought and call": f"where?</think>{one}",
        "nothing": "",
    }


#: names of the allowed texts, if calls are optional
_FREELY = {"words", "call", "words and call", "nothing", "end of thought and call"}
_BY_FORMAT: dict[str, tuple[set[str], set[str]]] = {
    # the allowed texts if calls are optional, and if one is required; both with parallel calls
    "hermes": (_FREELY | {"two", "thought and call"}, {"call", "two"}),
    "smollm2": (_FREELY | {"two", "thought and call"}, {"call", "two"}),
    # the first character decides whether the answer is a call
    "llama3": (_FREELY | {"thought and call"}, {"call"}),
    "pythonic": (_FREELY | {"two", "thought and call"}, {"call", "two"}),
    **{
        name: (_FREELY | {"two", "thought and call"}, {"call", "two"})
        for name in (
            *("mistral", "mistral_args", "phi4_mini", "command_r", "command_r7b"),
            *("deepseek_v3", "deepseek_v31", "harmony"),
        )
    },
    "qwen3_coder": (_FREELY | {"two", "thought and call"}, {"call", "two"}),
    "glm4": (_FREELY | {"two", "thought and call"}, {"call", "two"}),
}


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("required", [False, True], ids=["auto", "required"])
@pytest.mark.parametrize("parallel", [False, True], ids=["one", "several"])
def test_grammar_allows_exactly_the_calls_of_its_tools(
    form: CallFormat, required: bool, parallel: bool, kbnf: Callable[[str], Controller]
) -> None:
    allowed = set(_BY_FORMAT[form.name][required])
    if not parallel:
        allowed -= {"two"}
    controller = kbnf(_argument(FUNCTIONS, form, FREE, required=required, parallel=parallel))
    found = {name for name, text in _texts(form).items() if controller.accepts(text)}
    assert found == allowed


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_reasoning_may_precede_a_call(form: CallFormat, kbnf: Callable[[str], Controller]) -> None:
    written = _texts(form)
    controller = kbnf(_argument(FUNCTIONS, form, THINKS, required=True, parallel=False))
    assert controller.accepts(written["thought and call"])
    assert controller.accepts(written["call"])
    assert not controller.accepts(written["end of thought and call"])
    assert not controller.accepts("<think>where?</think>\nHello.")
    controller = kbnf(_argument(FUNCTIONS, form, OPEN, required=True, parallel=False))
    assert controller.accepts(written["end of thought and call"])
    assert not controller.accepts(written["call"])


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("start", [FREE, THINKS], ids=["plain", "reasons"])
def test_answer_is_calls_or_json_of_a_schema(
    form: CallFormat, start: Start, kbnf: Callable[[str], Controller]
) -> None:
    schema = json.dumps({"type": "object", "properties": {"say": {"type": "string"}}, "required": ["say"]})
    options: dict[str, Any] = {"required": False, "parallel": True, "schema": schema}
    controller = kbnf(_argument(FUNCTIONS, form, start, **options))
    written = _texts(form)
    say = '{"say": "<tool_call>"}'
    allowed = {
        "call",
        *(["two"] if form is not LLAMA3 else []),
        *(["thought and call"] if start is THINKS else []),
    }
    assert {name for name, text in written.items() if controller.accepts(text)} == allowed
    assert controller.accepts(say) and not controller.accepts(say + written["call"])
    assert not controller.accepts(written["call"] + say)
    call = _call("weather", '{"city": "Oslo"}')
    for text, parts in ((say, [Text(say)]), (written["call"], [call])):
        assert _read(form, start, [text], schema) == _read(form, start, list(text), schema) == parts


def test_reasoning_may_precede_an_answer_with_a_schema(kbnf: Callable[[str], Controller]) -> None:
    controller = kbnf(answer_grammar(AnswerPlan(THINKS, schema=json.dumps(CITY))).argument)
    for text, good in (
        ('{"city": "Oslo"}', True),
        ('<think>{"town"}</think>\n\n{"city": "Oslo"}', True),
        ('<think>so</think>{"town": "Oslo"}', False),
        ("<think>so</think>Oslo", False),
        ('so</think>{"city": "Oslo"}', False),
    ):
        assert controller.accepts(text) == good, text


TYPED: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "unit": {"enum": ["C", "F"], "type": "string"},
        "days": {"type": "array", "items": {"$ref": "#/$defs/day"}},
        "exact": {"type": "boolean"},
    },
    "required": ["city"],
    "$defs": {"day": {"type": "integer", "maximum": 9}},
}


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_arguments_follow_their_schemas(form: CallFormat, kbnf: Callable[[str], Controller]) -> None:
    functions = [Function(name="weather", parameters=TYPED), Function(name="now")]
    assert form.supports(functions)
    controller = kbnf(_argument(functions, form, FREE, required=True, parallel=False))
    for values, good in (
        ({"city": "Oslo"}, True),
        ({"city": "1"}, True),
        ({"city": "a < b\n</tool_call>", "unit": "C", "days": [1, 2], "exact": True}, True),
        ({"city": 'a"]\n```', "days": []}, True),
        ({"city": "Oslo", "days": [1], "exact": False}, True),
        ({"city": "Oslo", "unit": "K"}, False),
        ({"city": "Oslo", "days": [10]}, False),
        ({"city": "Oslo", "exact": "yes"}, False),
        ({"unit": "C"}, False),
        ({"town": "Oslo"}, False),
    ):
        text = form.write([("weather", values)])
        assert controller.accepts(text) == good, text
        if good:
            call = Call("weather", values)
            assert _read(form.bound(functions), FREE, list(text)) == [call]


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_schemas_of_tools_keep_their_drafts_and_names(
    form: CallFormat, kbnf: Callable[[str], Controller]
) -> None:
    """Each is a document of its own: identifiers and anchors of several tools may be equal."""
    four, seven = ({"$schema": f"http://json-schema.org/draft-0{number}/schema#"} for number in (4, 7))
    for place, named, draft in (
        ("#/definitions/k", {}, four),
        ("#k", {"id": "#k"}, {**four, "id": "https://a.example/t"}),
        ("#k", {"$id": "#k"}, {**seven, "$id": "https://a.example/t"}),
        ("#/definitions/k", {}, {}),
        ("t#k", {"$anchor": "k"}, {"$id": "https://a.example/t"}),
    ):
        functions = [
            Function(
                name=name,
                parameters={
                    **draft,
                    "type": "object",
                    "properties": {"a": {"$ref": place}},
                    "required": ["a"],
                    "additionalProperties": False,
                    "definitions": {"k": {**named, "enum": [number]}},
                },
            )
            for number, name in enumerate(("first", "second"))
        ]
        chosen = form if form.supports(functions) else HERMES
        controller = kbnf(_argument(functions, chosen, FREE, required=True, parallel=False))
        for name, number in itertools.product(("first", "second"), (0, 1)):
            text = chosen.write([(name, {"a": number})])
            assert controller.accepts(text) == (name == ("first", "second")[number]), (text, draft)


def test_schema_whose_root_is_a_reference_is_one_of_arguments(kbnf: Callable[[str], Controller]) -> None:
    """In draft 7, everything beside a reference is ignored, but `definitions` can be referred to."""
    root = {"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/definitions/T"}
    functions = [Function(name="f", parameters={**root, "definitions": {"T": {**CITY, "title": "T"}}})]
    controller = kbnf(_argument(functions, HERMES, FREE, required=True, parallel=False))
    assert controller.accepts(HERMES.write([("f", {"city": "Oslo"})]))
    assert not controller.accepts(HERMES.write([("f", {"town": "Oslo"})]))


@pytest.mark.parametrize("form", [QWEN3_CODER, GLM4, PYTHONIC], ids=["qwen3_coder", "glm4", "pythonic"])
def test_arguments_on_their_own_need_schemas_of_their_own(form: CallFormat) -> None:
    assert not form.supports([Function(name="f", parameters={"anyOf": [TYPED]})])
    assert not form.supports([Function(name="f", parameters={"type": "object", "required": ["a"]})])
    for keyword in ({"pattern": "a"}, {"maxLength": 3}, {"format": "date"}):
        schema = {"type": "object", "properties": {"a": {"type": "string", **keyword}}}
        assert form.supports([Function(name="f", parameters=schema)])
    for name, key in (("get-time", "a"), ("f", "no name")):
        function = Function(name=name, parameters={"type": "object", "properties": {key: {}}})
        assert form.supports([function]) == (form is not PYTHONIC)


def test_optional_arguments_and_words_of_python(kbnf: Callable[[str], Controller]) -> None:
    values: dict[str, Any] = {
        "a": {"type": ["integer", "null"]},
        "b": {"type": "boolean"},
        "c": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "d": {"type": "integer"},
        "e": {"type": "array", "items": {"type": "boolean"}},
    }
    schema = {"type": "object", "properties": values, "required": ["d"]}
    loose = {"type": "object", "properties": values}
    functions = [Function(name="f", parameters=schema), Function(name="g.h", parameters=loose)]
    controller = kbnf(_argument(functions, PYTHONIC, FREE, required=True, parallel=True))
    for text, found in (
        ("[f(d=1)]", [("f", {"d": 1})]),
        ("[f(a=None, d=1)]", [("f", {"a": None, "d": 1})]),
        ("[f(b=True, d=1, e=[true])]", [("f", {"b": True, "d": 1, "e": [True]})]),
        ('[f(a=2, b=False, c="None", d=1), g.h()]',
         [("f", {"a": 2, "b": False, "c": "None", "d": 1}), ("g.h", {})]),
        ("[g.h(c=None), g.h(e=[])]", [("g.h", {"c": None}), ("g.h", {"e": []})]),
        ("[f()]", None),
        ("[f(b=True)]", None),
        ("[f(d=1, b=True)]", None),
        ("[f(b=true, d=1)]", None),
        ("[f(d=True)]", None),
        ("[f(, d=1)]", None),
        ("[f(d=1,)]", None),
        ("[f(d=1) g.h()]", None),
        ("[]", None),
    ):  # fmt: skip
        assert controller.accepts(text) == (found is not None), text
        if found is not None:
            assert _read(PYTHONIC, FREE, list(text)) == [Call(*call) for call in found]


@settings(max_examples=cases(20, 60), deadline=None)
@given(
    form=st.sampled_from(list(FORMATS.values())),
    city=st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=12),
    before=st.sampled_from(["", "Let me see.", "a < b"]),
    thought=st.sampled_from([None, "hm", "a <think> b"]),
    cuts=st.lists(st.integers(0, 200), max_size=8),
)
def test_reading_does_not_depend_on_the_pieces(
    form: CallFormat, city: str, before: str, thought: str | None, cuts: list[int]
) -> None:
    if not form.begin:
        before = ""
    call = form.write([("weather", {"city": city})])
    text = (f"<think>{thought}</think>\n\n" if thought is not None else "") + before + call
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    pieces = [text[a:b] for a, b in itertools.pairwise(places)]
    expected: list[Event] = [Reasoning(thought)] if thought is not None else []
    expected += [Text(before)] if before else []
    expected.append(Call("weather", {"city": city}))
    assert _read(form.bound(FUNCTIONS), THINKS, pieces) == expected


@pytest.mark.parametrize(
    ("form", "start", "text", "parts"),
    [
        (None, FREE, "<think>a</think>b", [Text("<think>a</think>b")]),
        (None, THINKS, "<think>a</think>b", [Reasoning("a"), Text("b")]),
        (None, THINKS, "a<think>b</think>", [Text("a<think>b</think>")]),
        (None, OPEN, " a </think> b ", [Reasoning(" a"), Text("b ")]),
        (None, THINKS, "<think>a", [Reasoning("a")]),
        (None, THINKS, "<thi", [Text("<thi")]),
        (HERMES, FREE, "<tool_call>\nx\n</tool_call>",
         [Text("<tool_call>\nx\n</tool_call>")]),
        (HERMES, FREE, '<tool_call>\n{"name": "now"', [Text('<tool_call>\n{"name": "now"')]),
        (SMOLLM2, FREE, "<tool_call>[]</tool_call>", []),
        (LLAMA3, FREE, "Hello {", [Text("Hello {")]),
        (MISTRAL, FREE, "[", [Text("[")]),
        (MISTRAL, FREE, 'x[TOOL_CALLS] [{"name": "now", "arguments": {}, "id": "123456789"}]',
         [Text("x"), Call("now", {})]),
        (MISTRAL_ARGS, FREE, '[TOOL_CALLS]now[ARGS]{"a": "[ARGS]"}[TOOL_CALLS]now[ARGS]{}',
         [_call("now", '{"a": "[ARGS]"}'), Call("now", {})]),
        (MISTRAL_ARGS, FREE, "[TOOL_CALLS]now[ARGS]{}x", [Call("now", {}), Text("x")]),
        (MISTRAL_ARGS, FREE, '[TOOL_CALLS]now[ARGS]{"a', [Text('[TOOL_CALLS]now[ARGS]{"a')]),
        (COMMAND_R7B, FREE, '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "now", '
         '"parameters": {}}\n]<|END_ACTION|>', [Call("now", {})]),
        (COMMAND_R, FREE, 'I look.\nAction:\n```json\n[\n    {\n        "tool_name": "now",\n'
         '        "parameters": {"a": "```"}\n    }\n]```\n',
         [Text("I look."), _call("now", '{"a": "```"}')]),
        (DEEPSEEK_V3, FREE, DEEPSEEK_V3.write([("now", {}), ("now", {"a": "\n```<｜tool▁calls▁end｜>"})]),
         [Call("now", {}), _call("now", '{"a": "\\n```<｜tool▁calls▁end｜>"}')]),
        (DEEPSEEK_V31, FREE,
         "a<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜>",
         [Text("a"), Call("now", {})]),
        (DEEPSEEK_V31, FREE, "<｜tool▁calls▁begin｜>now{}<｜tool▁calls▁end｜>",
         [Text("<｜tool▁calls▁begin｜>now{}<｜tool▁calls▁end｜>")]),
        (PYTHONIC, FREE, "[now(), f(a=1)]", [Call("now", {}), _call("f", '{"a": 1}')]),
        (PYTHONIC, FREE, "[now()] x", [Text("[now()] x")]),
        (PYTHONIC, FREE, "[now(a=)]", [Text("[now(a=)]")]),
        (SMOLLM2, FREE, SMOLLM2.write([("now", {"a": "</tool_call>"})]) + " b",
         [_call("now", '{"a": "</tool_call>"}'), Text("b")]),
        (HERMES, FREE, '<tool_call>\n{"name": "now", "arguments": {"a": "\\ud800"}}\n</tool_call>',
         [_call("now", '{"a": "\ufffd"}')]),
        (HERMES, FREE, '<tool_call>\n{"name": "now", "arguments": {"a": 1e999}}\n</tool_call>',
         [Text('<tool_call>\n{"name": "now", "arguments": {"a": 1e999}}\n</tool_call>')]),
        (LLAMA3, FREE, '{"name": 1}', [Text('{"name": 1}')]),
    ],
)  # fmt: skip
def test_answers_are_split_into_parts(
    form: CallFormat | None, start: Start, text: str, parts: list[Any]
) -> None:
    assert _read(form, start, [text]) == parts
    assert _read(form, start, list(text)) == parts
