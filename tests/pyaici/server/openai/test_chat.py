"""Chats, with the official client: answers, schemas, tools."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from lab.system.waiting import PATIENCE
from pyaici.server.apis.openai.requests import ChatRequest, Message
from tests.pyaici.server.serving import Serving

MODEL = "default"
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "maxLength": 30},
                "days": {"type": "integer", "maximum": 9},
            },
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
CLOCK: dict[str, Any] = {"type": "function", "function": {"name": "clock", "description": "What time it is"}}
ASK = [{"role": "user", "content": "What is the weather in Oslo?"}]


@pytest.fixture(scope="module")
def client(server: Serving, tokens: dict[str, str]) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key=tokens["eve"], max_retries=0, timeout=PATIENCE)


@pytest.fixture(scope="module")
def exact_client(exact_server: Serving, tokens: dict[str, str]) -> openai.OpenAI:
    return openai.OpenAI(
        base_url=f"{exact_server.url}/v1", api_key=tokens["eve"], max_retries=0, timeout=PATIENCE
    )


def _ask(client: openai.OpenAI, **options: Any) -> Any:
    settings: dict[str, Any] = {"model": MODEL, "messages": ASK, "temperature": 0, "max_tokens": 100}
    return client.chat.completions.create(**{**settings, **options})


def test_answer_equals_its_stream(exact_client: openai.OpenAI) -> None:
    messages = [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
    ]
    whole = _ask(exact_client, messages=messages, max_tokens=12, logprobs=True, top_logprobs=2)
    (choice,) = whole.choices
    assert choice.message.content and choice.message.tool_calls is None
    assert "".join(entry.token for entry in choice.logprobs.content).startswith(choice.message.content)
    assert all(len(entry.top_logprobs) == 2 for entry in choice.logprobs.content)
    assert whole.usage.completion_tokens == len(choice.logprobs.content)
    chunks = list(_ask(exact_client, messages=messages, max_tokens=12, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == choice.message.content
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices[0].finish_reason] == [
        choice.finish_reason
    ]


def test_response_format_is_enforced(client: openai.OpenAI) -> None:
    schema = WEATHER["function"]["parameters"]
    form = {"type": "json_schema", "json_schema": {"name": "place", "schema": schema, "strict": True}}
    answer = _ask(client, response_format=form)
    found = json.loads(answer.choices[0].message.content)
    assert set(found) <= {"city", "days"} and isinstance(found["city"], str)
    (choice,) = _ask(client, response_format={"type": "json_object"}, max_tokens=200).choices
    # the object of a small model may be longer than the limit
    assert choice.message.content.lstrip().startswith("{")
    assert choice.finish_reason == "length" or isinstance(json.loads(choice.message.content), dict)


def test_unknown_formats_are_ignored_with_a_warning(client: openai.OpenAI) -> None:
    def form(**keywords: str) -> dict[str, Any]:
        return {"type": "json_schema", "json_schema": {"name": "a", "schema": {"enum": ["b"], **keywords}}}

    warning = "warning: not enforced: #/format: this format is not known, so it is ignored\n"
    (choice,) = _ask(client, response_format=form(format="colour")).choices
    assert choice.message.content == '"b"' and choice.log == warning
    chunks = list(_ask(client, response_format=form(format="colour"), stream=True))
    assert [chunk.choices[0].log for chunk in chunks if hasattr(chunk.choices[0], "log")] == [warning]
    (choice,) = _ask(client, response_format=form()).choices
    assert not hasattr(choice, "log")
    misspelled = {"json_schema": {"type": "string", "format": "date_time"}}
    with pytest.raises(openai.BadRequestError, match="do you mean date-time"):
        _ask(client, extra_body=misspelled)
    strict = {"schema": {"format": "colour"}, "unknown_formats": "refuse"}
    with pytest.raises(openai.BadRequestError, match="this format is not known"):
        _ask(client, extra_body={"json_schema": strict})


def test_required_call(client: openai.OpenAI) -> None:
    answer = _ask(client, tools=[WEATHER, CLOCK], tool_choice="required")
    (choice,) = answer.choices
    assert choice.finish_reason == "tool_calls" and choice.message.content is None
    call = choice.message.tool_calls[0]
    assert call.type == "function" and call.function.name in ("get_weather", "clock")
    if call.function.name == "get_weather":
        assert isinstance(json.loads(call.function.arguments)["city"], str)


def test_streamed_call_of_a_named_tool(client: openai.OpenAI) -> None:
    options = {"tools": [WEATHER, CLOCK], "tool_choice": {"type": "function", "function": {"name": "clock"}}}
    chunks = list(_ask(client, **options, stream=True, parallel_tool_calls=False))
    calls = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or ()]
    assert [(call.index, call.function.name, json.loads(call.function.arguments)) for call in calls] == [
        (0, "clock", {})
    ]
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    assert not any(chunk.choices[0].delta.content for chunk in chunks)


def test_named_tool_is_called_once(client: openai.OpenAI) -> None:
    """The model repeats this call if it may."""
    choice = {"type": "function", "function": {"name": "clock"}}
    (answer,) = _ask(client, tools=[WEATHER, CLOCK], tool_choice=choice).choices
    assert [call.function.name for call in answer.message.tool_calls] == ["clock"]
    assert answer.finish_reason == "tool_calls"


def test_answer_with_tools_and_a_schema_is_calls_or_json(client: openai.OpenAI) -> None:
    schema = {"type": "object", "properties": {"say": {"enum": ["hello"]}}, "required": ["say"]}
    form = {"type": "json_schema", "json_schema": {"name": "words", "schema": schema}}
    options = {"tools": [CLOCK], "response_format": form, "parallel_tool_calls": False}
    (answer,) = _ask(client, **options).choices
    if answer.finish_reason == "tool_calls":
        assert answer.message.tool_calls[0].function.name == "clock" and answer.message.content is None
    else:
        assert json.loads(answer.message.content)["say"] == "hello"
    (answer,) = _ask(client, **options, tool_choice="none").choices
    assert json.loads(answer.message.content)["say"] == "hello"
    (answer,) = _ask(client, **options, tool_choice="required").choices
    assert [call.function.name for call in answer.message.tool_calls] == ["clock"]


def test_optional_tools_allow_a_text(client: openai.OpenAI) -> None:
    for tool_choice in ("auto", "none"):
        messages = [{"role": "user", "content": "Say hello."}]
        (choice,) = _ask(client, tools=[WEATHER], tool_choice=tool_choice, messages=messages).choices
        if tool_choice == "auto" and choice.message.tool_calls:
            assert choice.finish_reason == "tool_calls"
            assert choice.message.tool_calls[0].function.name == "get_weather"
        else:
            assert choice.finish_reason in ("stop", "length")
            assert choice.message.content and choice.message.tool_calls is None


def test_chat_template_kwargs_are_accepted(client: openai.OpenAI) -> None:
    answer = _ask(client, max_tokens=2, extra_body={"chat_template_kwargs": {"enable_thinking": False}})
    assert answer.choices[0].message.content


def test_model_reads_results_of_tools(client: openai.OpenAI) -> None:
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'},
    }
    messages = [
        *ASK,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "It is 7 degrees."},
    ]
    answer = _ask(client, messages=messages, tools=[WEATHER], tool_choice="none", max_tokens=40)
    assert "7" in answer.choices[0].message.content


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "king", "content": "x"}]}, "role"),
        ({"messages": [{"role": "user"}]}, "content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "the model reads text only"),
        ({"extra_body": {"response_fromat": {}}}, "did you mean response_format?"),
        ({"tools": [WEATHER, WEATHER]}, "same name"),
        ({"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "x"}}}, "no tool 'x'"),
        ({"tool_choice": "required"}, "there are no tools"),
        ({"tools": [WEATHER], "extra_body": {"regex": "a"}}, "cannot be combined"),
        ({"response_format": {"type": "json_schema"}}, "schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "strin"}}}}, "strin"),
        ({"tools": [{"type": "function", "function": {"name": "a", "parameters": {"type": "x"}}}]}, "x"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "name"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"reasoning_effort": "low"}, "this model does not reason"),
        ({"extra_body": {"echo": True}}, "echo: this field is not supported: it is for /v1/completions"),
        ({"extra_body": {"chat_template_kwargs": {"chat_template": "{{ 1 }}"}}}, "not a variable"),
        ({"extra_body": {"chat_template_kwargs": {"tokenize": False}}}, "not a variable"),
        ({"extra_body": {"chat_template_kwargs": {"thinking": ["a"]}}}, "a text of at most"),
    ],
)  # fmt: skip
def test_invalid_requests_are_refused(client: openai.OpenAI, options: dict[str, Any], words: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        _ask(client, **options)
    assert words in str(refused.value)


def test_allowed_tools_are_the_only_ones_that_are_called(client: openai.OpenAI) -> None:
    def choice(name: str) -> dict[str, Any]:
        only = {"type": "function", "function": {"name": name}}
        return {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [only]}}

    options = {"tools": [WEATHER, CLOCK], "parallel_tool_calls": False}
    (answer,) = _ask(client, **options, tool_choice=choice("clock")).choices
    assert [call.function.name for call in answer.message.tool_calls] == ["clock"]
    with pytest.raises(openai.BadRequestError, match="there is no tool 'rain'"):
        _ask(client, **options, tool_choice=choice("rain"))


def test_earlier_refusals_are_texts() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "No."}]
    cases: list[tuple[dict[str, Any], str]] = [({"refusal": "No."}, "No."), ({"content": parts}, "aNo.")]
    for fields, text in cases:
        assert Message.model_validate({"role": "assistant", **fields}).text == text


def test_null_is_unset_in_parts_of_a_request() -> None:
    call = {"id": None, "type": None, "function": {"name": "now", "arguments": None}}
    turns = [{"role": "user", "content": "Hi", "audio": None}, {"role": "assistant", "tool_calls": [call]}]
    body = {"messages": turns, "stream_options": {"include_usage": None}, "best_of": None, "new": None}
    made = ChatRequest.model_validate(body)
    assert (
        made.messages[1].tool_calls is not None and made.messages[1].tool_calls[0].function.arguments == "{}"
    )
    assert made.stream_options is not None and not made.stream_options.include_usage
    assert not list(made.ignored)
