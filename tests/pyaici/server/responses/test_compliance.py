"""The cases of the compliance test of Open Responses, with the default model; every answer is as defined."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.pyaici.server.responses.definition import check_events, check_response
from tests.pyaici.server.serving import Serving

WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a place",
    "parameters": {
        "type": "object",
        "properties": {"location": {"type": "string", "maxLength": 20, "description": "a city"}},
        "required": ["location"],
    },
}
ASK = "What is the weather in San Francisco?"


def _said(role: str, text: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": text}


def _post(server: Serving, **body: Any) -> dict[str, Any]:
    with server.client() as client:
        answer = client.post("/v1/responses", json={"model": "default", "temperature": 0, **body})
    assert answer.status_code == 200, answer.text
    response: dict[str, Any] = answer.json()
    check_response(response)
    return response


@pytest.mark.parametrize(
    "given",
    [
        "Say hello in exactly 3 words.",
        [_said("system", "Talk like a pirate."), _said("user", "Say hello.")],
        [
            _said("user", "My name is Alice."),
            _said("assistant", "Hello Alice!"),
            _said("user", "What is my name?"),
        ],
    ],
    ids=["basic", "system", "turns"],
)
def test_text(server: Serving, given: Any) -> None:
    # a small model may go on for ever
    response = _post(server, input=given, max_output_tokens=100, regex="[^\n]{1,40}[.!?]")
    (item,) = response["output"]
    assert response["status"] == item["status"] == "completed"
    assert item["type"] == "message" and item["content"][0]["text"]
    usage = response["usage"]
    assert usage["output_tokens"] > 0
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]


def test_answer_that_is_cut_off_is_incomplete(server: Serving) -> None:
    response = _post(server, input="Count from 1 to 50.", max_output_tokens=4)
    assert response["status"] == response["output"][-1]["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert response["completed_at"] is None and response["usage"]["output_tokens"] == 4
    body = {"input": "Hi", "max_output_tokens": 2, "stream": True}
    assert check_events(server.events("/v1/responses", **body))[-1] == "response.incomplete"


def test_stream(server: Serving) -> None:
    body = {"input": "Count from 1 to 5.", "temperature": 0, "max_output_tokens": 100, "stream": True}
    with server.client() as client, client.stream("POST", "/v1/responses", json=body) as answer:
        lines = [line for line in answer.iter_lines() if line]
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    types = check_events(map(json.loads, data[:-1]))
    assert types.count("response.output_text.delta") > 3
    assert answer.headers["content-type"].startswith("text/event-stream")
    named = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
    assert named == types and data[-1] == "[DONE]"


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "get_weather"}])
def test_call_of_a_tool_in_both_forms(server: Serving, choice: Any) -> None:
    body = {"input": ASK, "tools": [WEATHER], "tool_choice": choice, "parallel_tool_calls": False}
    response = _post(server, **body)
    (call,) = response["output"]
    assert (call["type"], call["name"], call["status"]) == ("function_call", "get_weather", "completed")
    assert response["tool_choice"] == choice and response["tools"][0]["name"] == "get_weather"
    types = check_events(server.events("/v1/responses", **body, temperature=0, stream=True))
    assert types[2:6] == [
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
    ]


def test_result_of_a_call_continues_a_stored_response(server: Serving) -> None:
    named = {"type": "function", "name": "get_weather"}
    first = _post(server, input=ASK, tools=[WEATHER], tool_choice=named)
    call = first["output"][0]
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "64 degrees and clear"}
    limit = {"max_output_tokens": 60}
    second = _post(server, previous_response_id=first["id"], input=[result], **limit)
    assert second["output"][0]["type"] == "message"
    assert second["previous_response_id"] == first["id"]
    # the same conversation without the server's memory
    sent = [_said("user", ASK), call, result]
    whole = _post(server, input=sent, **limit)
    assert whole["usage"]["input_tokens"] == second["usage"]["input_tokens"]


def test_stored_response_is_continued(server: Serving) -> None:
    first = _post(server, input="Remember this code word: papaya.", max_output_tokens=16)
    second = _post(
        server,
        previous_response_id=first["id"],
        input="Which word?",
        instructions="Be short.",
        max_output_tokens=16,
    )
    third = _post(server, previous_response_id=second["id"], input="And?", max_output_tokens=16)
    counts = [response["usage"]["input_tokens"] for response in (first, second, third)]
    assert counts == sorted(set(counts))
    assert third["instructions"] is None, "instructions are not carried over"


def test_conversation_with_more_objects_than_a_body_may_have_is_not_stored(server: Serving) -> None:
    """A hundred bytes would continue it, and have the server parse millions of objects at once."""
    previous = None
    for stored in (True, True, False):
        listed = {"type": "mcp_list_tools", "server_label": "a", "tools": [[]] * 30_000}
        given = [listed, _said("user", "Hi")]
        made = _post(server, input=given, max_output_tokens=1, previous_response_id=previous)
        assert made["store"] is stored
        previous = made["id"]
    with server.client() as client:
        answer = client.post("/v1/responses", json={"input": "Hi", "previous_response_id": previous})
    assert answer.status_code == 404


@pytest.mark.parametrize("kind", ["input_image", "input_file"])
def test_images_and_files_are_refused_by_name(server: Serving, kind: str) -> None:
    part = {"type": kind, "image_url": "data:image/png;base64,"}
    with server.client() as client:
        answer = client.post("/v1/responses", json={"input": [{"role": "user", "content": [part]}]})
    error = answer.json()["error"]
    assert answer.status_code == 400 and error["type"] == "invalid_request"
    assert error["param"] == "input.0.content" and f"'{kind}'" in error["message"]


@pytest.mark.parametrize("kind", ["file_search", "web_search"])
def test_tools_that_the_server_would_call_are_refused_by_name(server: Serving, kind: str) -> None:
    with server.client() as client:
        answer = client.post("/v1/responses", json={"input": "Hi", "tools": [{"type": kind}]})
    assert answer.status_code == 400 and f"tools of the type '{kind}'" in answer.json()["error"]["message"]
