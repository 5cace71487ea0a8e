"""`POST /api/v1/messages` of a real server, with plain requests and with Anthropic's client."""

from __future__ import annotations

import json
from typing import Any, Literal

import anthropic
import httpx2
import pydantic
import pytest

from tests.pyaici.server.serving import Serving, read_events

ASK = [{"role": "user", "content": "What's the weather in Tokyo?"}]
WEATHER = {
    "name": "get_weather",
    "description": "Get weather for a location",
    "input_schema": {
        "type": "object",
        "properties": {"location": {"enum": ["Tokyo", "Oslo"]}, "days": {"type": "integer", "maximum": 9}},
        "required": ["location"],
    },
}
JSON = {"content-type": "application/json"}
BASE: dict[str, Any] = {"model": "rwkv-world", "messages": ASK, "max_tokens": 120}


def _post(server: Serving, **fields: Any) -> httpx2.Response:
    with server.client() as client:
        return client.post("/api/v1/messages", json={**BASE, **fields})


def _message(server: Serving, **fields: Any) -> dict[str, Any]:
    answer = _post(server, **fields)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_minimal_request_is_answered(server: Serving) -> None:
    with server.client() as client:
        body = {"model": "rwkv-world", "messages": [{"role": "user", "content": "Say hi."}], "temperature": 0}
        answer = client.post("/api/v1/messages", json=body).json()
    assert answer["type"] == "message" and answer["role"] == "assistant"
    assert answer["content"][0]["text"] and answer["stop_reason"] == "end_turn"
    assert answer["usage"]["input_tokens"] > 5 and answer["usage"]["output_tokens"] > 0


def test_call_with_checked_arguments(server: Serving) -> None:
    message = _message(server, tools=[WEATHER], tool_choice="any", bnf_validation="schema_aware")
    assert message["stop_reason"] == "tool_use"
    calls = [block for block in message["content"] if block["type"] == "tool_use"]
    assert calls and all(call["name"] == "get_weather" for call in calls)
    assert all(call["input"]["location"] in ("Tokyo", "Oslo") for call in calls)
    assert len({call["id"] for call in calls}) == len(calls)


@pytest.mark.parametrize("stream", [False, True])
def test_ignored_fields_are_named_in_a_header(exact_server: Serving, stream: bool) -> None:
    """Claude Code sends such fields with each request."""
    edits = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
    unusual = {"a field": 1, "x\r\ny": 1, "é": 1, "service_tier": "auto", "metadata": {"user_id": "u"}}
    answer = _post(exact_server, context_management=edits, stream=stream, max_tokens=2, **unusual)
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-aici-ignored"] == "context_management, service_tier"
    assert "x-aici-ignored" not in _post(exact_server, stream=stream, max_tokens=2).headers


def test_custom_grammar(server: Serving) -> None:
    message = _message(server, bnf_schema="start::='yes' | 'no';", bnf_validation="none")
    assert message["content"][0]["text"] in ("yes", "no") and message["stop_reason"] == "end_turn"


def test_custom_grammar_with_thinking(server: Serving) -> None:
    """The model answers one question at once, and thinks about another. Thinking is not read to its end."""
    thinking = {"type": "enabled", "budget_tokens": 1024}
    body = {"bnf_schema": "start::='yes' | 'no';", "thinking": thinking, "max_tokens": 1100, "temperature": 0}
    question = [{"role": "user", "content": "Is the sky blue? Answer yes or no."}]
    message = _message(server, **body, messages=question)
    assert [block["type"] for block in message["content"]] in (["text"], ["thinking", "text"])
    assert message["content"][-1]["text"] in ("yes", "no") and message["stop_reason"] == "end_turn"
    body = {**BASE, **body, "stream": True}
    with server.client() as client, client.stream("POST", "/api/v1/messages", json=body) as answer:
        deltas = (event["delta"] for event in read_events(answer) if event["type"] == "content_block_delta")
        assert next(deltas)["type"] == "thinking_delta"


def test_stop_sequence_is_reported_and_removed(server: Serving) -> None:
    message = _message(server, stop_sequences=["xyz", " the "], temperature=0)
    assert (message["stop_reason"], message["stop_sequence"]) == ("stop_sequence", " the ")
    assert message["content"][0]["text"] and " the " not in message["content"][0]["text"]


@pytest.mark.parametrize(
    ("fields", "status", "kind", "param", "words"),
    [
        ({"messages": []}, 400, "invalid_request_error", None, "messages cannot be empty"),
        ({"max_tokens": 0}, 400, "invalid_request_error", "max_tokens", "greater than 0"),
        ({"top_k": 10**30}, 400, "invalid_request_error", "top_k", "at most"),
        ({"stop_sequences": ["a" * 2000]}, 400, "invalid_request_error", "stop_sequences.0", "1024"),
        (
            {"tools": [{"name": f"t{i}", "input_schema": {}} for i in range(200)]},
            400,
            "invalid_request_error",
            "tools",
            "128 are allowed",
        ),
        (
            {"tools": [{"name": "t", "input_schema": {"description": "a" * 200_000}}]},
            400,
            "invalid_request_error",
            "tools",
            "131072",
        ),
        ({"max_tokens": 100000}, 400, "invalid_request_error", "max_tokens", "4096"),
        ({"model": "gpt-4"}, 404, "not_found_error", "model", "SmolLM2"),
        ({"bnf_schema": "start ::= 'a'\n  | b;"}, 400, "invalid_request_error", "bnf_schema", "line 2"),
        ({"bnf_schema": " "}, 400, "invalid_request_error", "bnf_schema", "cannot be empty"),
        (
            {"messages": [{"role": "user", "content": "\ud800"}]},
            400,
            "invalid_request_error",
            None,
            "surrogate",
        ),
    ],
)
def test_invalid_requests_are_refused(
    server: Serving, fields: dict[str, Any], status: int, kind: str, param: str | None, words: str
) -> None:
    with server.client() as client:
        content = json.dumps({**BASE, **fields})
        answer = client.post(
            "/api/v1/messages", content=content, headers={"content-type": "application/json"}
        )
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert body["type"] == "error" and body["error"]["type"] == kind
    assert words in body["error"]["message"]
    if param is not None:
        assert body["error"]["param"] == param


def test_nested_definitions_take_no_exponential_time(server: Serving) -> None:
    """There are 2^40 paths through these definitions."""
    definitions: dict[str, Any] = {"d40": {"type": "integer"}}
    for number in range(40):
        next_one = {"$ref": f"#/$defs/d{number + 1}"}
        definitions[f"d{number}"] = {"anyOf": [next_one, next_one]}
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": definitions}
    tools = [{"name": "t", "input_schema": schema}]
    assert _post(server, tools=tools, bnf_validation="schema_aware", max_tokens=5).status_code in (200, 400)


@pytest.mark.parametrize("text", ["(*" * 50_000, "'" + "\\'" * 50_000, "\n" * 100_000])
def test_unclosed_grammars_are_refused(server: Serving, text: str) -> None:
    thinking = {"type": "enabled", "budget_tokens": 1024}
    answer = _post(server, bnf_schema=text + "x", thinking=thinking, max_tokens=2000)
    assert answer.status_code == 400, answer.text


@pytest.mark.usefixtures("no_collection")
def test_deeply_nested_json_is_refused(server: Serving) -> None:
    with server.client() as client:
        deep = b'{"model": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
        for path in ("/api/v1/messages", "/v1/run", "/v1/chat/completions"):
            assert client.post(path, content=deep, headers=JSON).status_code == 400


def test_errors_of_all_layers_have_the_same_format(server: Serving) -> None:
    with server.client() as client:
        for answer, kind in (
            (client.post("/api/v1/messages", content=b"{"), "invalid_request_error"),
            (client.post("/api/v1/messages", content=json.dumps(BASE)), "invalid_request_error"),
            (client.post("/api/v1/messages", content=b"{", headers=JSON), "invalid_request_error"),
            (client.get("/api/v1/messages"), "invalid_request_error"),
            (client.get("/api/v1/nothing"), "not_found_error"),
        ):
            assert answer.json()["error"]["type"] == kind and answer.json()["type"] == "error"


def test_anthropic_client_works(server: Serving, tokens: dict[str, str]) -> None:
    client = anthropic.Anthropic(base_url=f"{server.url}/api", api_key=tokens["eve"], max_retries=0)
    message = client.messages.create(
        model="default", max_tokens=12, messages=[{"role": "user", "content": "Hi"}]
    )
    assert message.content[0].type == "text" and message.usage.output_tokens <= 12
    with client.messages.stream(
        model="default",
        max_tokens=200,
        messages=[{"role": "user", "content": "What's the weather in Tokyo?"}],
        tools=[WEATHER],  # type: ignore[list-item]
        tool_choice={"type": "any"},
        extra_body={"bnf_validation": "schema_aware"},
    ) as stream:
        final = stream.get_final_message()
    assert final.stop_reason == "tool_use"
    assert final.content[0].type == "tool_use" and final.content[0].input["location"] in ("Tokyo", "Oslo")  # type: ignore[index]
    with pytest.raises(anthropic.AuthenticationError):
        wrong = anthropic.Anthropic(base_url=f"{server.url}/api", api_key="wrong", max_retries=0)
        wrong.messages.create(model="default", max_tokens=5, messages=[{"role": "user", "content": "Hi"}])


def test_newest_fields_of_anthropic_client(server: Serving, tokens: dict[str, str]) -> None:
    client = anthropic.Anthropic(base_url=server.url, api_key=tokens["eve"], max_retries=0)

    class Weather(pydantic.BaseModel):
        sky: Literal["clear", "grey"]

    parsed = client.messages.parse(model="default", max_tokens=60, messages=ASK, output_format=Weather)
    assert parsed.parsed_output is not None and parsed.parsed_output.sky in ("clear", "grey")
    tool: Any = {**WEATHER, "strict": True, "type": "custom"}
    called = client.messages.create(
        model="default", max_tokens=200, messages=ASK, tools=[tool], tool_choice={"type": "any"}
    )
    (use, *_) = called.content
    assert use.type == "tool_use" and use.input["location"] in ("Tokyo", "Oslo")
    counted = client.messages.count_tokens(
        model="default", messages=ASK, tools=[tool], tool_choice={"type": "any"}
    )
    assert counted.input_tokens == called.usage.input_tokens
    thinking: Any = {"type": "enabled", "budget_tokens": 1_000_000}
    thought = client.messages.count_tokens(model="default", messages=ASK, thinking=thinking)
    assert 0 < thought.input_tokens != counted.input_tokens
    with pytest.raises(anthropic.BadRequestError, match=r"chat template has no reasoning_effort"):
        client.messages.create(model="default", max_tokens=9, messages=ASK, output_config={"effort": "low"})


def test_models_for_anthropic_client(server: Serving, tokens: dict[str, str]) -> None:
    for base in (server.url, f"{server.url}/api"):
        client = anthropic.Anthropic(base_url=base, api_key=tokens["eve"], max_retries=0)
        (model,) = client.models.list()
        assert model.type == "model" and model.display_name == model.id and model.created_at.year >= 2026
        assert client.models.retrieve(model.id) == model
        with pytest.raises(anthropic.NotFoundError):
            client.models.retrieve("nothing")


def test_both_routes_are_one(server: Serving) -> None:
    with server.client() as client:
        for path in ("/v1/messages", "/v1/messages/count_tokens", "/api/v1/messages/count_tokens"):
            refused = client.post(path, json={**BASE, "messages": []})
            assert refused.status_code == 400 and refused.json()["type"] == "error"
            assert client.post(path, content=b"{}").status_code == 400
