"""Requests of the Responses API: the chats that they become, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from pyaici.server.apis.responses.requests import Item, ResponsesRequest, chat_messages
from pyaici.server.http.errors import ApiError
from tests.pyaici.server.serving import Serving

CALL = {"type": "function_call", "call_id": "c1", "name": "now", "arguments": "{}"}


def _messages(*items: dict[str, Any], instructions: str | None = None) -> list[dict[str, Any]]:
    return chat_messages([Item.model_validate(item) for item in items], instructions)


def test_items_become_messages() -> None:
    parts = [{"type": "output_text", "text": "a"}, {"type": "refusal", "refusal": "b"}]
    messages = _messages(
        {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "So."}]},
        {"type": "message", "role": "assistant", "content": parts},
        CALL,
        {**CALL, "call_id": "c2"},
        {"type": "function_call_output", "call_id": "c1", "output": "12:30"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "13"}]},
        CALL,
    )
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool", "assistant"]
    assert messages[0]["content"] == "Hi" and messages[1]["content"] == "ab"
    assert [call["id"] for call in messages[1]["tool_calls"]] == ["c1", "c2"]
    assert [message["content"] for message in messages[2:]] == ["12:30", "13", None]


def test_calls_of_mcp_servers_in_one_answer_become_one_round() -> None:
    def call(id: str, **fields: Any) -> dict[str, Any]:
        fields = {"output": id, **fields}
        return {"type": "mcp_call", "id": id, "server_label": "s", "name": "n", "arguments": "{}", **fields}

    failed = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "no"}]}
    said = {"type": "message", "role": "assistant", "content": "Wait."}
    items = [said, call("mcp_a_0"), call("mcp_a_1", output=None, error=failed), call("mcp_b_0"), CALL]
    messages = _messages(*items)
    roles = ["assistant", "tool", "tool", "assistant", "tool", "assistant"]
    assert [message["role"] for message in messages] == roles
    assert messages[0]["content"] == "Wait."
    assert [call["id"] for call in messages[0]["tool_calls"]] == ["mcp_a_0", "mcp_a_1"]
    assert [message["content"] for message in messages[1:3]] == ["mcp_a_0", "error: no"]
    assert [call["id"] for call in messages[3]["tool_calls"]] == ["mcp_b_0"]
    other = _messages(call("mcp_1"), call("mcp_2"))
    assert [message["role"] for message in other] == ["assistant", "tool", "tool"]


def test_instructions_and_a_system_message_are_one() -> None:
    system = {"role": "developer", "content": "Be kind."}
    user = {"role": "user", "content": "Hi"}
    first, second = _messages(system, user, instructions="Be short.")
    assert first == {"role": "system", "content": "Be short.\n\nBe kind."} and second == user
    assert [message["role"] for message in _messages(user, system)] == ["user", "developer"]


def test_fields_become_those_of_chats() -> None:
    body = ResponsesRequest.model_validate(
        {
            "input": "Hi",
            "max_output_tokens": 5,
            "temperature": 0.5,
            "regex": "a",
            "tools": [{"type": "function", "name": "now", "description": "The time", "strict": True}],
            "tool_choice": {"type": "allowed_tools", "tools": [{"type": "function", "name": "now"}]},
            "reasoning": {"effort": "low", "summary": "auto"},
            "include": ["message.output_text.logprobs", "reasoning.encrypted_content"],
        }
    )
    chat = body.chat(body.input)
    assert chat.messages[0].text == "Hi" and chat.max_tokens == 5 and chat.temperature == 0.5
    assert chat.regex == "a" and chat.logprobs and chat.reasoning_effort == "low"
    assert chat.tools and chat.tools[0].function.description == "The time"
    assert list(body.ignored) == ["reasoning.summary"]


def test_no_tool_is_allowed() -> None:
    only = {"type": "allowed_tools", "mode": "none", "tools": [{"type": "function", "name": "now"}]}
    body = ResponsesRequest.model_validate({"input": "Hi", "tool_choice": only})
    assert body.chat(body.input).tool_choice == "none"


def test_conversation_that_becomes_too_long_is_refused() -> None:
    body = ResponsesRequest.model_validate({"input": "Hi"})
    with pytest.raises(ApiError, match=r"^input: list should have at most 4096 items"):
        body.chat(body.input * 4097)


@pytest.mark.parametrize(
    "item",
    [
        {"type": "item_reference"},
        {"type": "compaction", "encrypted_content": "x"},
        {"type": "web_search_call", "id": "ws_1"},
        {"role": "user"},
        {"type": "function_call", "call_id": "c1"},
        {"type": "function_call_output", "call_id": "c1"},
        {"role": "user", "content": [{"type": "input_image"}]},
    ],
)
def test_items_that_cannot_be_read_are_refused(item: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ResponsesRequest.model_validate({"input": [item]})


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        ({"background": True}, "background", "leave the connection open"),
        ({"conversation": "c"}, "conversation", "use previous_response_id"),
        ({"max_tool_calls": 65}, "max_tool_calls", "less than or equal to 64"),
        ({"messages": [{}]}, "messages", "use input"),
        ({"max_tokens": 5}, "max_tokens", "use max_output_tokens"),
        ({"response_format": {"type": "text"}}, "response_format", "use json_schema or text"),
        ({"text": {"verbosity": "low"}}, "text.verbosity", "how long"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format", "needs a schema"),
        (
            {"text": {"format": {"type": "json_schema", "schema": {"type": "x"}}}},
            "text.format.schema",
            "type",
        ),
        ({"tool_choice": {"type": "function", "name": "a"}}, "tool_choice", "there are no tools"),
        ({"reasoning": {"effort": "low"}}, "reasoning.effort", "does not reason"),
        ({"max_output_tokens": 1 << 20}, "max_output_tokens", "this server allows"),
        ({"inputs": "Hi"}, "inputs", "did you mean input?"),
        ({"input": []}, "input", "at least 1"),
        ({"top_logprobs": 20, "max_output_tokens": 1000, "ignore_eos": True}, "top_logprobs", "16384"),
    ],
)
def test_refused_requests_name_the_field(
    exact_server: Serving, body: dict[str, Any], param: str, words: str
) -> None:
    with exact_server.client() as client:
        answer = client.post("/v1/responses", json={"input": "Hi", **body})
    error = answer.json()["error"]
    assert answer.status_code == 400, answer.text
    assert (error["type"], error["param"]) == ("invalid_request", param) and words in error["message"]
