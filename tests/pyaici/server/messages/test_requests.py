"""Requests: accepted fields, and errors for invalid ones."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

import pytest

from pyaici.server.apis.messages import MessagesError, parse_request
from pyaici.server.apis.messages.plan import level_of
from pyaici.server.apis.messages.requests import _REFUSED, STATUS, MessagesRequest
from pyaici.server.apis.sampling import SamplingFields
from tests.pyaici.server.messages.bodies import (
    EXAMPLE,
    QUESTION,
    SEED,
    THINKING,
    TOOLS,
    request,
    strings,
    tool,
)

#: fields that this API has as well
_OF_BOTH = {"temperature", "top_p", "top_k"}
FORMAT = {"format": {"type": "json_schema", "schema": {"type": "object"}}}


def refusal(body: Any) -> MessagesError:
    with pytest.raises(MessagesError) as caught:
        parse_request(body)
    return caught.value


@pytest.mark.parametrize(
    ("fields", "message", "param"),
    [
        ({"model": ""}, "model is required", "model"),
        ({"messages": []}, "messages cannot be empty", None),
        (
            {"messages": [{"role": "assistant", "content": "Hi"}]},
            "first message must have role 'user'",
            "messages.0.role",
        ),
        ({"max_tokens": 0}, "max_tokens must be greater than 0", "max_tokens"),
        ({"stop_sequences": ["a"] * 9}, "stop_sequences cannot have more than 8 items", "stop_sequences"),
        ({"stop": ["a"] * 9}, "stop_sequences cannot have more than 8 items", "stop_sequences"),
        (
            {"stop_sequences": ["a", ""]},
            "stop_sequences cannot contain empty strings",
            "stop_sequences.1",
        ),
        ({"temperature": 2.1}, "temperature must be between 0.0 and 2.0", "temperature"),
        ({"temperature": -0.1}, "temperature must be between 0.0 and 2.0", "temperature"),
        ({"temperature": float("nan")}, "temperature must be between 0.0 and 2.0", "temperature"),
        ({"top_p": 1.01}, "top_p must be between 0.0 and 1.0", "top_p"),
        ({"top_p": -1}, "top_p must be between 0.0 and 1.0", "top_p"),
        ({"top_k": 0}, "top_k must be greater than 0", "top_k"),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 1023}},
            "budget_tokens must be at least 1024",
            "thinking.budget_tokens",
        ),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 2000}, "max_tokens": 2000},
            "budget_tokens must be less than max_tokens",
            "thinking.budget_tokens",
        ),
        ({"bnf_schema": " \n"}, "bnf_schema cannot be empty", "bnf_schema"),
        ({"bnf_shema": "x"}, "bnf_shema: there is no such field; did you mean bnf_schema?", "bnf_shema"),
        (
            {"guided_json": {}},
            "guided_json: this API has no such field; use output_config",
            "guided_json",
        ),
        (
            {"mcp_servers": [{}]},
            "mcp_servers: this field is not supported: offer their tools in tools",
            "mcp_servers",
        ),
        (
            {"tools": [{**TOOLS[0], "strict": True}], "bnf_validation": "structural"},
            'tools.0.strict needs bnf_validation "schema_aware"',
            "tools.0.strict",
        ),
        (
            {"output_config": FORMAT, "bnf_schema": "start ::= 'a';"},
            "output_config.format cannot be combined with bnf_schema: remove one of them",
            "output_config.format",
        ),
        (
            {"strict_seed_grammar": True},
            'strict_seed_grammar needs bnf_validation "structural"',
            "strict_seed_grammar",
        ),
        (
            {**SEED, "tools": TOOLS, "tool_choice": "any"},
            "the grammar of strict_seed_grammar always allows calls, and several",
            "tool_choice",
        ),
    ],
)
def test_broken_rules_are_errors(fields: dict[str, Any], message: str, param: str | None) -> None:
    error = refusal({**QUESTION, **fields})
    assert (error.status, error.message, error.param) == (400, message, param)
    expected = {"type": "invalid_request_error", "message": message} | ({"param": param} if param else {})
    assert error.body() == {"type": "error", "error": expected}


def test_limits_of_ranges_are_accepted() -> None:
    for fields in (
        {"temperature": 0, "top_p": 0, "top_k": 1, "max_tokens": 1},
        {"temperature": 2.0, "top_p": 1.0, "stop_sequences": ["a"] * 8},
        {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 1025},
    ):
        request(**fields)


@pytest.mark.parametrize(
    ("fields", "param", "part"),
    [
        ({"messages": [{"role": "tool", "content": "a"}]}, "messages.0.role", "'assistant' or 'system'"),
        ({"messages": [{"role": "user"}]}, "messages.0.content", "is required"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages.0.content", "valid string"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image"}]}]},
            "messages.0.content.0",
            "does not match any of the expected tags",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_use", "id": "a", "input": {}}]}]},
            "messages.0.content.0.name",
            "is required",
        ),
        ({"max_tokens": "5"}, "max_tokens", "valid integer"),
        ({"max_tokens": 5.5}, "max_tokens", "valid integer"),
        ({"temperature": "hot"}, "temperature", "valid number"),
        ({"stop_sequences": "a"}, "stop_sequences", "valid list"),
        ({"bnf_validation": "strict"}, "bnf_validation", "'none', 'structural' or 'schema_aware'"),
        ({"tools": [{"name": "a"}]}, "tools.0.input_schema", "is required"),
        ({"tools": [{"name": "a", "input_schema": None}]}, "tools.0.input_schema", "valid dictionary"),
        ({"tools": [{"name": "a", "input_schema": []}]}, "tools.0.input_schema", "valid dictionary"),
        ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens", "is required"),
        ({"tool_choice": "sometimes"}, "tool_choice", "'auto', 'none', 'any' or 'tool'"),
    ],
)
def test_wrong_types_are_errors(fields: dict[str, Any], param: str, part: str) -> None:
    error = refusal({**QUESTION, **fields})
    assert error.status == 400 and error.param == param and part in error.message
    assert error.message.startswith(param)


@pytest.mark.parametrize("missing", ["model", "messages"])
def test_missing_fields_are_named(missing: str) -> None:
    error = refusal({name: value for name, value in QUESTION.items() if name != missing})
    assert error.message == f"{missing} is required" and error.param == missing


@pytest.mark.parametrize("body", [None, [], "text", 5])
def test_body_must_be_an_object(body: Any) -> None:
    assert refusal(body).message == "the body must be a JSON object"


def test_lone_surrogates_are_refused_in_any_field() -> None:
    for fields in ({"stop": ["\ud800"]}, {"metadata": {"\udfff": 1}}, {"bnf_schema": "start::='\ud800';"}):
        assert "half of a surrogate pair" in refusal({**QUESTION, **fields}).message


@pytest.mark.parametrize(
    ("tools", "param", "part"),
    [
        ([tool("get weather", strings())], "tools.0.name", "1 to 64 letters"),
        ([tool("", strings())], "tools.0.name", "1 to 64 letters"),
        ([tool("a" * 65, strings())], "tools.0.name", "1 to 64 letters"),
        ([tool("é", strings())], "tools.0.name", "1 to 64 letters"),
        ([tool("a\n", strings())], "tools.0.name", "1 to 64 letters"),
        ([tool("a", strings()), tool("a", strings())], "tools.1.name", "two tools"),
        ([tool("a", {"type": "array"})], "tools.0.input_schema.type", "must be an object"),
    ],
)
def test_invalid_tools_are_errors(tools: list[dict[str, Any]], param: str, part: str) -> None:
    error = refusal({**QUESTION, "tools": tools})
    assert error.status == 400 and error.param == param and part in error.message


def test_valid_tool_names_are_accepted() -> None:
    assert request(tools=[tool("0-a_B", {}), tool("a" * 64, {"type": ["object", "null"]})])


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"tool_choice": {"type": "tool"}}, "needs the name"),
        ({"tool_choice": {"type": "tool", "name": "send"}}, "names send"),
        ({"tool_choice": "any", "bnf_validation": "none"}, "can be enforced only"),
        ({"tool_choice": "any", "bnf_schema": "start::='a';"}, "together with bnf_schema"),
        ({"tool_choice": "any", "tools": []}, "no tools"),
    ],
)
def test_unenforceable_tool_choices_are_errors(fields: dict[str, Any], part: str) -> None:
    error = refusal({**QUESTION, "tools": TOOLS, **fields})
    assert error.status == 400 and part in error.message
    assert error.param is not None and error.param.startswith("tool_choice")


def test_tool_choice_may_be_a_text_or_an_object() -> None:
    for word in ("auto", "none", "any"):
        assert request(tools=TOOLS, tool_choice=word) == request(tools=TOOLS, tool_choice={"type": word})


def test_default_values() -> None:
    made = request()
    assert (made.max_tokens, made.temperature, made.top_p, made.top_k) == (1024, 1.0, 0.5, 128)
    assert made.stop_sequences == ["</ai00:assistant>"] and not made.stream and not made.thinks
    assert made == request(temperature=None, tools=None, thinking=None, stop_sequences=None, bnf_schema=None)


@pytest.mark.parametrize("name", sorted(SamplingFields.model_fields.keys() - _OF_BOTH - {"seed"}))
def test_sampling_fields_of_other_apis_are_refused(name: str) -> None:
    value: Any = {"5": 1.0} if name == "logit_bias" else [5] if name == "stop_token_ids" else 0.5
    with pytest.raises(MessagesError) as refused:
        request(**{name: value})
    assert refused.value.message.startswith(f"{name}: this field is not supported: POST /v1/chat/completions")
    assert refused.value.param == name


def test_unknown_fields_are_ignored() -> None:
    made = request(
        service_tier="fast", metadata={"user_id": "a"}, repetition_penalty=1.0, min_p=0, bad_words=[]
    )
    assert made.model == "m" and list(made.ignored) == ["service_tier"], "the others change nothing"
    cached = {**TOOLS[0], "cache_control": {"type": "ephemeral"}}
    assert request(tools=[cached]) == request(tools=[TOOLS[0]])


@pytest.mark.parametrize("types", ["anthropic.types", "anthropic.types.beta"])
def test_each_field_of_anthropics_client_is_known_refused_or_named_as_ignored(types: str) -> None:
    base = import_module(f"{types}.message_create_params")
    fields = [*base.MessageCreateParamsBase.__annotations__, "stream"]
    assert len(fields) > 15
    for name in fields:
        body = {**QUESTION, name: "x"}
        if name in _REFUSED:
            assert refusal(body).param == name
        elif name not in MessagesRequest.model_fields:
            made = parse_request(body)
            assert list(made.ignored) == [name] and made.model_dump() == request().model_dump()


def test_instructions_may_come_in_messages() -> None:
    first, later = ({"role": "system", "content": text} for text in ("Be kind.", "Be brief."))
    made = request(messages=[first, later, *QUESTION["messages"], later], system="You are.")
    assert made.system_text == "You are.\nBe kind.\nBe brief."
    for messages in ([first], [first, {"role": "assistant", "content": "a"}]):
        found = refusal({**QUESTION, "messages": messages})
        assert found.message == "first message must have role 'user'"
    result = [{"type": "tool_result", "tool_use_id": "1"}]
    found = refusal({**QUESTION, "messages": [*QUESTION["messages"], {"role": "system", "content": result}]})
    assert found.param == "messages.1.content"


def test_kinds_of_blocks() -> None:
    content = [
        {"type": "redacted_thinking", "data": "x"},
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
        {"type": "tool_use", "id": "1", "name": "f", "input": {"a": [1]}},
    ]
    results = [
        {"type": "tool_result", "tool_use_id": "1"},
        {"type": "tool_result", "tool_use_id": "1", "content": "a", "is_error": True},
        {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "a"}]},
        {
            "type": "tool_result",
            "tool_use_id": "1",
            "content": [{"type": "tool_reference", "tool_name": "f"}],
        },
    ]
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": content},
        {"role": "user", "content": results},
    ]
    made = request(messages=messages, system=[{"type": "text", "text": "Be kind"}])
    assert [block.type for message in made.messages for block in message.blocks] == [
        *("text", "redacted_thinking", "thinking", "text", "tool_use", *["tool_result"] * 4)
    ]
    assert made.system_text == "Be kind"


def test_examples_of_ai00_are_accepted() -> None:
    made = parse_request(json.loads(EXAMPLE))
    assert made.stop_sequences == ["</ai00:assistant>"] and made.tools[0].name == "get_weather"
    for fields in (
        {"bnf_validation": "none"},
        {"bnf_validation": "structural"},
        {"bnf_validation": "schema_aware"},
        {"bnf_schema": "start::='yes' | 'no';", "bnf_validation": "none"},
    ):
        request(**fields)


def test_default_level() -> None:
    custom = "start::='a';"
    assert level_of(request()) == "none"
    assert level_of(request(tools=TOOLS)) == level_of(request(**THINKING)) == "structural"
    assert level_of(request(bnf_schema=custom)) == "none"
    assert level_of(request(tools=TOOLS, bnf_schema=custom)) == "none", "the user's grammar is enforced"
    assert level_of(request(bnf_schema=custom, **THINKING)) == "none"
    for level in ("none", "structural", "schema_aware"):
        assert level_of(request(tools=TOOLS, bnf_validation=level, bnf_schema=custom)) == level


def test_kinds_of_errors_have_their_status() -> None:
    assert [STATUS[kind] for kind in STATUS] == [400, 401, 403, 404, 429, 500, 503]
    assert MessagesError("overloaded_error", "busy").body() == {
        "type": "error",
        "error": {"type": "overloaded_error", "message": "busy"},
    }


def test_fields_that_promise_checked_values_mean_schema_aware() -> None:
    strict = [{**TOOLS[0], "strict": True, "type": "custom"}, TOOLS[1]]
    assert level_of(request(tools=strict)) == level_of(request(output_config=FORMAT)) == "schema_aware"
    assert level_of(request(tools=TOOLS)) == "structural"
    assert level_of(request(output_config={"effort": None, "format": None})) == "none"


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
        {"output_config": {"format": {"type": "json_object"}}},
        {"output_config": {"verbosity": "low"}},
        {"thinking": {"type": "adaptive", "display": "no"}},
    ],
)
def test_unsupported_values_are_refused_by_name(fields: dict[str, Any]) -> None:
    (name,) = fields
    assert (refusal({**QUESTION, **fields}).param or "").startswith(name)
