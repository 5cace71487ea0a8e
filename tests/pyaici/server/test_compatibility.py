"""Tables of docs/compatibility.md: complete by the types of official clients, and as a server answers."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

import pytest

from pyaici.server.apis.fields import OpenBody
from pyaici.server.apis.messages.requests import MessagesRequest
from pyaici.server.apis.ollama.requests import ChatBody, GenerateRequest
from pyaici.server.apis.openai.requests import ChatRequest, CompletionRequest
from pyaici.server.apis.responses.requests import ResponsesRequest
from tests.docs.test_server_pages import rows, section
from tests.pyaici.server.client_fields import paths
from tests.pyaici.server.serving import Serving

PAGE = "compatibility.md"
HI = [{"role": "user", "content": "Hi"}]
CHATS, COMPLETIONS, OTHERS = "Chats of OpenAI", "Completions of OpenAI", "vLLM and other servers"
RESPONSES = "Responses of OpenAI"
MESSAGES, OLLAMA = "Messages of Anthropic", "Ollama"
#: path of a route -> the sections of its fields, the least body, and the model of requests
ROUTES: dict[str, tuple[tuple[str, ...], dict[str, Any], type[OpenBody]]] = {
    "/v1/chat/completions": ((CHATS, OTHERS), {"messages": HI, "max_tokens": 2}, ChatRequest),
    "/v1/completions": ((COMPLETIONS, OTHERS), {"prompt": "Hi", "max_tokens": 2}, CompletionRequest),
    "/v1/responses": ((RESPONSES,), {"input": "Hi", "max_output_tokens": 2}, ResponsesRequest),
    "/v1/messages": ((MESSAGES,), {"model": "default", "messages": HI, "max_tokens": 2}, MessagesRequest),
    "/api/chat": ((OLLAMA, "Chat"), {"model": "default", "messages": HI, "stream": False}, ChatBody),
    "/api/generate": (
        (OLLAMA, "Generate"),
        {"model": "default", "prompt": "Hi", "stream": False},
        GenerateRequest,
    ),
}


class Row(NamedTuple):
    """A row of a table."""

    fields: list[str]
    sent: dict[str, Any]
    result: str
    why: str


def table(heading: str) -> list[Row]:
    """Returns the rows of a section, without those of its subsections."""
    text = re.split("^#", section(PAGE, heading), flags=re.MULTILINE)[0]
    return [
        Row(re.findall("`([^`]+)`", fields), json.loads("{" + sent.strip("`") + "}"), result, why)
        for fields, sent, result, why in rows(text)
    ]


def rows_of(route: str) -> list[Row]:
    return [row for heading in ROUTES[route][0] for row in table(heading)]


def has(value: Any, path: list[str]) -> bool:
    """Returns whether a value has the path, in any item of its lists."""
    if not path:
        return True
    if isinstance(value, list):
        return any(has(item, path) for item in value)
    return isinstance(value, dict) and path[0] in value and has(value[path[0]], path[1:])


#: route, field, what is sent, result, reason
CASES = [
    pytest.param(route, field, row, id=f"{route} {field}")
    for route in ROUTES
    for row in rows_of(route)
    for field in row.fields
]


@pytest.mark.parametrize(("route", "field", "row"), CASES)
def test_fields_are_answered_as_the_page_says(
    exact_server: Serving, route: str, field: str, row: Row
) -> None:
    assert has(row.sent, field.replace("[]", "").split(".")), "the row sends no such field"
    # an error names the first refused field
    several = row.result == "refused" and len(row.fields) > 1
    body = {**ROUTES[route][1], **({field: row.sent[field]} if several else row.sent)}
    if route.startswith("/api/") and row.result != "refused":
        body["options"] = {"num_predict": 2, **body.get("options", {})}
    with exact_server.client() as client:
        answer = client.post(route, json=body)
    named = answer.headers.get("x-aici-ignored", "").split(", ")
    if row.result == "refused":
        assert answer.status_code == 400 and row.why in answer.text, answer.text
        assert re.split(r"[.\[]", field)[0] in answer.text
    else:
        assert answer.status_code == 200, answer.text
        assert (field in named) == (row.result == "ignored" and "[]" not in field), named


def classified(route: str, path: str) -> bool:
    """Returns whether a row has the path, or a part of the request with it is refused or ignored."""
    for row in rows_of(route):
        for field in row.fields:
            if path == field or (row.result != "done" and path.startswith((f"{field}.", f"{field}["))):
                return True
    return False


def check_complete(route: str, *kinds: Any, depth: int = 9) -> None:
    found = {path for kind in kinds for path in paths(kind, depth=depth)}
    assert len(found) > 15
    missing = sorted(path for path in found if not classified(route, path))
    assert not missing, f"{PAGE} does not say what {route} does with {missing}"


def test_page_has_each_field_of_openais_client() -> None:
    from openai.types import completion_create_params as completions
    from openai.types.chat import completion_create_params as chats

    check_complete(
        "/v1/chat/completions",
        chats.CompletionCreateParamsNonStreaming,
        chats.CompletionCreateParamsStreaming,
    )
    check_complete(
        "/v1/completions",
        completions.CompletionCreateParamsNonStreaming,
        completions.CompletionCreateParamsStreaming,
    )


def test_page_has_each_field_of_openais_responses() -> None:
    from openai.types.responses import response_create_params

    kinds = (
        response_create_params.ResponseCreateParamsNonStreaming,
        response_create_params.ResponseCreateParamsStreaming,
    )
    check_complete("/v1/responses", *kinds, depth=1)


def test_page_has_each_field_of_anthropics_client() -> None:
    from anthropic.types import message_create_params
    from anthropic.types.beta import message_create_params as beta_message_create_params

    kinds = (
        kind
        for base in (message_create_params, beta_message_create_params)
        for kind in (base.MessageCreateParamsNonStreaming, base.MessageCreateParamsStreaming)
    )
    check_complete("/v1/messages", *kinds, depth=1)


def test_page_has_each_field_of_ollamas_client() -> None:
    from ollama import _types as ollama_types

    for route, kind in (
        ("/api/generate", ollama_types.GenerateRequest),
        ("/api/chat", ollama_types.ChatRequest),
    ):
        check_complete(route, kind)
        options = {path for path in paths(ollama_types.Options) if not classified(route, f"options.{path}")}
        assert not options, f"{PAGE} does not say what {route} does with the options {sorted(options)}"


def test_page_has_each_refused_field_with_its_cure() -> None:
    listed = {(field, row.why) for route in ROUTES for row in rows_of(route) for field in row.fields}
    for _, _, model in ROUTES.values():
        for name, refused in model.refused.items():
            of_elsewhere = "it is for /v1/" in refused.cure or refused.cure == "put it into options"
            assert of_elsewhere or (name, refused.cure) in listed


def test_bodies_with_other_constraints_are_refused(exact_server: Serving) -> None:
    names = re.findall("`([a-z_]+)`", section(PAGE, "Constraints of other APIs"))
    assert len(names) > 10
    for route, (_, least, model) in ROUTES.items():
        for name in names:
            if name in model.model_fields:
                continue
            with exact_server.client() as client:
                answer = client.post(route, json={**least, name: "x"})
            assert answer.status_code == 400 and f"{name}: this API has no such field; use" in answer.text


def test_ignored_fields_are_bounded_in_the_header_and_named_once_in_the_log(exact_server: Serving) -> None:
    body = {**ROUTES["/v1/completions"][1], **{f"hint_of_others_{number:02}": 1 for number in range(40)}}
    with exact_server.client() as client:
        for _ in range(2):
            named = client.post("/v1/completions", json=body).headers["x-aici-ignored"].split(", ")
            assert named == [f"hint_of_others_{number:02}" for number in range(16)]
    assert exact_server.text().count("requests have the field hint_of_others_07,") == 1
