"""Large requests are refused quickly, with a short answer, and do not block other requests."""

from __future__ import annotations

import difflib
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from pyaici.server.apis.cpc.requests import CpcRequest
from pyaici.server.apis.fields import MAX_FIELDS
from pyaici.server.apis.messages.requests import MessagesRequest
from pyaici.server.apis.openai.requests import ChatRequest, CompletionRequest
from pyaici.server.apis.run.routes import RunRequest
from tests.pyaici.server.serving import Serving

MANY = 50_000
HELLO = [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize(
    ("model", "body"),
    [
        (RunRequest, {"prompt": ["a"] * MANY}),
        (RunRequest, {"prompt": [-1] * MANY}),
        (RunRequest, {"messages": [{}] * MANY}),
        (RunRequest, {"messages": [{"role": "user", "content": "", **{f"x{n}": 0 for n in range(MANY)}}]}),
        (RunRequest, {"prompt": "a", **{f"x{n}": 0 for n in range(MANY)}}),
        (CpcRequest, {"prefix": "a", **{f"x{n}": 0 for n in range(MANY)}}),
        (CompletionRequest, {"prompt": "a", **{f"regexx{n}": 0 for n in range(MANY)}}),
        (CompletionRequest, {"prompt": [["a"] * MANY]}),
        (CompletionRequest, {"prompt": [{}] * MANY}),
        (CompletionRequest, {"prompt": "a", "stop": [1] * MANY}),
        (CompletionRequest, {"prompt": "a", "choice": [1] * MANY}),
        (CompletionRequest, {"prompt": "a", "choice": ["a"] * 100_000}),
        (ChatRequest, {"messages": [{}] * MANY}),
        (ChatRequest, {"messages": [{"role": "user", "content": [{}] * MANY}]}),
        (ChatRequest, {"messages": [{"role": "assistant", "tool_calls": [{}] * MANY}]}),
        (ChatRequest, {"messages": HELLO, "tools": [{}] * MANY}),
        (MessagesRequest, {"model": "m", "messages": [{}] * MANY}),
        (MessagesRequest, {"model": "m", "messages": [{"role": "user", "content": [{}] * MANY}]}),
        (MessagesRequest, {"model": "m", "messages": HELLO, "system": [{}] * MANY}),
        (MessagesRequest, {"model": "m", "messages": HELLO, "stop_sequences": [1] * MANY}),
        (MessagesRequest, {"model": "m", "messages": HELLO, "tools": [{}] * MANY}),
    ],
)
def test_invalid_body_yields_few_errors(model: type[BaseModel], body: dict[str, Any]) -> None:
    """Each error is an object, so an error for each mistake of a large body would take gigabytes."""
    with pytest.raises(ValidationError) as refused:
        model.model_validate(body)
    assert refused.value.error_count() < 20


def test_bodies_with_many_new_fields_are_accepted() -> None:
    body = {"model": "m", "messages": HELLO, **{f"new_field_{number}": 1 for number in range(MAX_FIELDS - 2)}}
    assert ChatRequest.model_validate(body).messages[0].text == "Hi"


def test_few_misspelled_fields_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A comparison takes up to a millisecond of the event loop."""
    compared: list[str] = []
    find = difflib.get_close_matches

    def counted(word: str, *arguments: Any, **options: Any) -> list[str]:
        compared.append(word)
        return find(word, *arguments, **options)

    monkeypatch.setattr("pyaici.server.apis.fields.difflib.get_close_matches", counted)
    odd = {f"frequency_penxxxxxxx_{number}": 1 for number in range(MAX_FIELDS - 2)}
    for model, body in ((ChatRequest, {"messages": HELLO}), (CompletionRequest, {"prompt": "a"})):
        compared.clear()
        model.model_validate({**body, **odd})
        assert 0 < len(compared) < 20
        with pytest.raises(ValidationError, match="did you mean max_tokens"):
            model.model_validate({"max_tokenz": 1, **body, **odd})


def _nested(depth: int) -> Any:
    value: Any = "a"
    for _ in range(depth):
        value = [value]
    return value


def _nested_schema(depth: int) -> Any:
    schema: Any = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("/v1/run", {"prompt": "a" * (2 << 20)}, "context_length_exceeded"),
        ("/v1/run", {"prompt": [1] * (1 << 20)}, "context_length_exceeded"),
        ("/v1/run", {"messages": [{"role": "user", "content": "a" * 4000}] * 900}, "context_length_exceeded"),
        ("/v1/completions", {"prompt": ["a" * (1 << 20)] * 3}, "context_length_exceeded"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a" * (1 << 20)}]},
         "context_length_exceeded"),
        ("/v1/chat/completions", {"messages": HELLO, "tools": [{"type": "function", "function": {
            "name": "f", "parameters": {"enum": ["a"] * 400_000}}}]}, "context_length_exceeded"),
        ("/cpc", {"context": "a" * (1 << 20), "prefix": "b"}, "context_length_exceeded"),
        ("/v1/run", {"prompt": "a", "b" * 1_000_000: 1}, None),
        ("/v1/run", {"prompt": "a", "controller": "choice", "controller_arg": _nested(900)}, None),
        ("/v1/run", {"prompt": ["a"] * 400_000}, None),
        ("/v1/chat/completions", {"messages": HELLO, "tools": [{"type": "function", "function": {
            "name": "f", "parameters": _nested_schema(300)}}]}, None),
        ("/v1/completions", {"prompt": "a", "json_schema": _nested_schema(400)}, None),
    ],
)  # fmt: skip
def test_large_bodies_get_short_answers(server: Serving, path: str, body: Any, code: str | None) -> None:
    content = json.dumps(body).encode()
    with server.client() as client:
        answer = client.post(path, content=content, headers={"content-type": "application/json"})
    assert answer.status_code == 400, answer.text[:1000]
    error = answer.json()["error"]
    assert len(answer.content) < 1000
    if code is not None:
        assert error["code"] == code


def test_large_messages_get_short_answers(server: Serving) -> None:
    with server.client() as client:
        tool = {"name": "f", "input_schema": {"type": "object", "description": "a" * (128 << 10)}}
        for content, tools in (("a" * (2 << 20), []), ([{}] * MANY, []), ("Hi", [tool])):
            messages = [{"role": "user", "content": content}]
            body = {"model": "default", "messages": messages, "tools": tools}
            answer = client.post("/api/v1/messages", json=body)
            assert answer.status_code == 400 and len(answer.content) < 1000, answer.text[:1000]


def _run(prompt: str) -> tuple[str, dict[str, Any]]:
    return "/v1/run", {"prompt": prompt}


def _chat(prompt: str) -> tuple[str, dict[str, Any]]:
    return "/v1/chat/completions", {"messages": [{"role": "user", "content": prompt}]}


def _messages(prompt: str) -> tuple[str, dict[str, Any]]:
    return "/api/v1/messages", {"model": "default", "messages": [{"role": "user", "content": prompt}]}


def _complete(prompt: str) -> tuple[str, dict[str, Any]]:
    return "/v1/completions", {"prompt": [prompt, prompt]}


def _cpc(prompt: str) -> tuple[str, dict[str, Any]]:
    return "/cpc", {"context": prompt, "prefix": "a"}


@pytest.mark.parametrize("ask", [_run, _chat, _messages, _complete, _cpc])
def test_long_prompts_do_not_block_other_requests(
    server: Serving, ask: Callable[[str], tuple[str, dict[str, Any]]]
) -> None:
    """Tokenizing the prompt takes a large part of a second; /health must not wait for it."""
    prompt = "".join(f"Wörter {number} und {number * 7919}; " for number in range(8000))
    path, body = ask(prompt)
    bodies, answered = 4, 0
    refused: list[int] = []

    def send() -> None:
        with server.client() as client:
            for _ in range(bodies):
                answer = client.post(path, json=body)
                assert answer.status_code == 400 and "tokens" in answer.text, answer.text[:500]
                refused.append(answer.status_code)

    sender = threading.Thread(target=send)
    sender.start()
    with server.client() as client:
        while sender.is_alive():
            assert client.get("/health").status_code == 200
            answered += 1
    sender.join()
    assert len(refused) == bodies
    assert answered > 25 * bodies, "most requests had to wait for the prompts"
