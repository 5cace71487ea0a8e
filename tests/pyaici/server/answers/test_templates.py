"""Chat templates of model families: tools, calls and answers use one format."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyaici.server.answers.known_formats import HERMES
from pyaici.server.answers.templates import template_tools
from pyaici.server.apis.openai.chat_plan import ChatPlan, plan_chat
from pyaici.server.apis.openai.requests import ChatRequest
from pyaici.server.http.users import Role, User
from pyaici.server.models import ServedModel
from tests.docs.test_server_pages import rows, section
from tests.pyaici.server.openai.byte_model import byte_model
from tests.pyaici.server.openai.templates import TEMPLATES

TOOL = {
    "type": "function",
    "function": {
        "name": "clock",
        "description": "What time it is",
        "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}},
    },
}
ASK = {"role": "user", "content": "What time is it?"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "clock", "arguments": '{"zone": "UTC"}'}}


def _plan(model: ServedModel, *messages: dict[str, Any]) -> tuple[ChatPlan, str]:
    """Returns the plan for a chat, and the prompt as text."""
    request = ChatRequest.model_validate({"messages": [*messages], "tools": [TOOL]})
    plan = plan_chat(model, request, User("eve", Role.RUN))
    return plan, model.tokenizer.decode(plan.job.prompt)


def test_table_in_the_documentation() -> None:
    found = {}
    for name, template in TEMPLATES.items():
        known = template_tools(byte_model(template).tokenizer, template)
        who = {True: "the template", False: "we"}
        found[name] = [f"`{known.form.name}`", who[known.describes_tools], who[known.writes_calls]]
    shown = {row[0]: row[1:] for row in rows(section("openai.md", "Tools")) if row[0] in TEMPLATES}
    assert shown == found


@pytest.mark.parametrize("name", TEMPLATES)
def test_prompt_describes_tools_once_and_in_one_format(name: str) -> None:
    model = byte_model(TEMPLATES[name])
    plan, prompt = _plan(model, ASK)
    assert plan.answer.form is not None and prompt.count("What time it is") == 1
    known = template_tools(model.tokenizer, model.chat_template)
    assert known.describes_tools != ("You may call functions." in prompt)


@pytest.mark.parametrize("name", TEMPLATES)
def test_earlier_calls_are_written_in_the_same_format(name: str) -> None:
    calls = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    result = {"role": "tool", "tool_call_id": "call_1", "content": "It is noon."}
    plan, prompt = _plan(byte_model(TEMPLATES[name]), ASK, calls, result)
    assert plan.answer.form is not None
    # the text after the description of the tools
    rest = prompt[prompt.index("What time is it?") :]
    written = plan.answer.form.write([("clock", {"zone": "UTC"})])
    assert written in rest or plan.answer.form.is_written(rest, "clock", {"zone": "UTC"})
    assert rest.count("It is noon.") == 1 and rest.count("clock") == 1


@pytest.mark.parametrize("name", TEMPLATES)
def test_calls_of_one_round_are_written_with_all_results(name: str) -> None:
    """Expects each call before its own result where the template takes one call at a time."""
    calls = [
        {**CALL, "id": f"call_{zone}", "function": {"name": "clock", "arguments": json.dumps({"zone": zone})}}
        for zone in ("CET", "EST")
    ]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    results = [
        {"role": "tool", "tool_call_id": f"call_{zone}", "content": f"Noon there: {hour}."}
        for zone, hour in (("CET", 11), ("EST", 17))
    ]
    model = byte_model(TEMPLATES[name])
    _, prompt = _plan(model, ASK, message, *results)
    rest = prompt[prompt.index("What time is it?") :]
    places = [rest.index(text) for text in ("CET", "EST", "Noon there: 11.", "Noon there: 17.")]
    known = template_tools(model.tokenizer, model.chat_template)
    if known.writes_calls and not known.several_calls:
        assert places[0] < places[2] < places[1] < places[3]
    else:
        assert places == sorted(places)
    assert all(rest.count(text) == 1 for text in ("CET", "EST", "Noon there: 11.", "Noon there: 17."))


@pytest.mark.parametrize("arguments", ['{"zone": ', "{'zone': 1}", "noon", "[1, 2]", "7", "null", '"noon"'])
@pytest.mark.parametrize("name", TEMPLATES)
def test_earlier_calls_may_have_arguments_that_are_no_object(name: str, arguments: str) -> None:
    """A model wrote them, and the client keeps them; the text is in the prompt, perhaps as a JSON string."""
    call = {**CALL, "function": {"name": "clock", "arguments": arguments}}
    calls = {"role": "assistant", "content": None, "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "call_1", "content": "It is noon."}
    _, prompt = _plan(byte_model(TEMPLATES[name]), ASK, calls, result)
    rest = prompt[prompt.index("What time is it?") :]
    assert arguments in rest or json.dumps(arguments) in rest or json.dumps(json.dumps(arguments)) in rest


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("arguments", ["", " ", "\n"])
def test_blank_arguments_of_earlier_calls_are_none(name: str, arguments: str) -> None:
    prompts = set[str]()
    for text in ("{}", arguments):
        call = {**CALL, "function": {"name": "clock", "arguments": text}}
        calls = {"role": "assistant", "content": None, "tool_calls": [call]}
        result = {"role": "tool", "tool_call_id": "call_1", "content": "It is noon."}
        prompts.add(_plan(byte_model(TEMPLATES[name]), ASK, calls, result)[1])
    assert len(prompts) == 1


@pytest.mark.parametrize("turn", [{"content": None}, {}, {"content": None, "tool_calls": []}])
def test_turn_of_the_assistant_without_content_is_empty(turn: dict[str, Any]) -> None:
    model = byte_model(TEMPLATES["Qwen2.5"])
    _, prompt = _plan(model, ASK, {"role": "assistant", **turn}, ASK)
    assert prompt == _plan(model, ASK, {"role": "assistant", "content": ""}, ASK)[1]


def test_schemas_that_tags_cannot_enforce_use_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls are in one format then, too: not in that of the template."""
    for name in ("Qwen3-Coder", "GLM-4.6"):
        model = byte_model(TEMPLATES[name])
        zones = {"type": "object", "properties": {"zone": {"type": "string"}}, "minProperties": 1}
        monkeypatch.setitem(TOOL["function"], "parameters", zones)  # type: ignore[arg-type]
        calls = {"role": "assistant", "content": None, "tool_calls": [CALL]}
        plan, prompt = _plan(model, ASK, calls)
        assert plan.answer.form is HERMES and HERMES.write([("clock", {"zone": "UTC"})]) in prompt
        assert "<function=" not in prompt and "<arg_key>" not in prompt


def test_call_ids_that_a_template_refuses_are_replaced() -> None:
    model = byte_model(TEMPLATES["Mistral-Nemo"])
    form = template_tools(model.tokenizer, model.chat_template).form
    assert form.call_id("abcdefghi") == "abcdefghi"
    made = form.call_id("call_1")
    assert made is not None and len(made) == 9 and made.isalnum() and made == form.call_id("call_1")
    assert made != form.call_id("call_2") and form.call_id(None) is not None


def test_template_that_refuses_everything_has_no_tools() -> None:
    model = byte_model("{{ raise_exception('no') }}")
    known = template_tools(model.tokenizer, model.chat_template)
    assert (known.form.name, known.describes_tools, known.writes_calls) == ("hermes", False, False)


@pytest.mark.parametrize(
    ("field", "value", "reasons"),
    [
        ("json_schema", {"type": "integer"}, True),
        ("response_format", {"type": "json_object"}, True),
        ("regex", "[0-9]", False),
        ("controller", "json_schema", False),
    ],
)
def test_schemas_apply_after_reasoning(field: str, value: Any, reasons: bool) -> None:
    """Other constraints apply to the whole answer, whatever their argument is."""
    body = {"messages": [ASK], field: value, "controller_arg": "{" if field == "controller" else None}
    model = byte_model(TEMPLATES["DeepSeek-R1"])
    call = plan_chat(model, ChatRequest.model_validate(body), User("eve", Role.RUN)).job.controller
    assert call is not None and (call.controller == "kbnf") == reasons and ("</think>" in call.arg) == reasons


def test_default_of_several_templates_counts() -> None:
    """Command R has one for tools, too, which takes them only in Cohere's own notation."""
    model = byte_model(TEMPLATES["Command-R"])
    tools = "{% for tool in tools %}{{ tool.parameter_definitions.items() }}{% endfor %}"
    model.tokenizer.chat_template = {"default": TEMPLATES["Command-R"], "tool_use": tools}
    plan, prompt = _plan(model, ASK)
    assert plan.answer.form is not None and plan.answer.form.name == "command_r"
    assert "You may call functions." in prompt and prompt.count("What time is it") == 1
