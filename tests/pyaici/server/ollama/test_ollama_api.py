"""Ollama's API, with the requests that its clients send, and with our own client of it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import pytest

from pyaici.server.apis.cpc.ollama import OllamaCompletion
from pyaici.server.apis.cpc.requests import CpcRequest
from pyaici.server.apis.fields import Part
from pyaici.server.apis.ollama.requests import (
    CalledFunction,
    ChatBody,
    GenerateRequest,
    Message,
    ModelName,
    Options,
    ToolCall,
)
from pyaici.server.apis.ollama.routes import _plan_text
from pyaici.server.http.errors import ApiError
from pyaici.server.http.users import Role, User
from tests.pyaici.server.openai.byte_model import byte_model
from tests.pyaici.server.serving import Serving

MODEL = "SmolLM2-135M-Instruct:latest"
GREEDY = {"temperature": 0.0, "num_predict": 12, "num_ctx": 4096}
#: what the official client sends besides
USUAL: dict[str, Any] = {"model": MODEL, "suffix": "", "system": "", "template": ""}
OBJECT = {**USUAL, "prompt": "Is it?", "format": "json", "stream": False}
CLOCK = {"type": "function", "function": {"name": "clock", "description": "What time it is"}}


def _lines(answer: httpx2.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    return [json.loads(line) for line in answer.text.splitlines()]


def test_stream_of_a_text_equals_the_whole(server: Serving, exact_server: Serving) -> None:
    body = {**USUAL, "prompt": "The capital of France is", "raw": True, "options": GREEDY}
    with server.client() as client:
        answer = client.post("/api/generate", json={**body, "stream": False}).json()
        assert answer["response"].startswith(" Paris")
    with exact_server.client() as client:
        *pieces, last = _lines(client.post("/api/generate", json=body))
        whole = client.post("/api/generate", json={**body, "stream": False}).json()
    assert not any(piece["done"] for piece in pieces) and last["done"] and last["response"] == ""
    text = "".join(piece["response"] for piece in pieces)
    assert text == whole["response"] != ""
    for line in (last, whole):
        assert line["done_reason"] == "length" and (line["prompt_eval_count"], line["eval_count"]) == (5, 12)
        assert line["model"] == MODEL and line["total_duration"] >= line["eval_duration"] >= 0


def test_two_tools_of_one_name_are_refused(server: Serving) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "tools": [CLOCK, CLOCK]}
    with server.client() as client:
        answer = client.post("/api/chat", json=body)
    assert answer.status_code == 400 and "two tools have the same name" in answer.json()["error"]


def test_chat_follows_a_schema_and_calls_tools(server: Serving) -> None:
    schema = {
        "type": "object",
        "properties": {"fish": {"type": "boolean"}},
        "required": ["fish"],
        "additionalProperties": False,
    }
    messages = [{"role": "user", "content": "Is a whale a fish?"}]
    body = {"model": MODEL, "messages": messages, "stream": False, "options": {**GREEDY, "num_predict": 60}}
    with server.client() as client:
        found = client.post("/api/chat", json={**body, "format": schema}).json()
        assert isinstance(json.loads(found["message"]["content"])["fish"], bool)
        assert found["done_reason"] == "stop" and found["message"]["role"] == "assistant"
        generated = client.post(
            "/api/generate",
            json={
                **USUAL,
                "prompt": "Is it?",
                "format": "json",
                "stream": False,
                "options": {**GREEDY, "num_predict": 200},
            },
        ).json()
        text = generated["response"]
        # an object may be longer than the answer
        assert text.startswith("{") if generated["done_reason"] == "length" else json.loads(text) is not None
        call = {"function": {"name": "clock", "arguments": {}}}
        later = [
            *messages,
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": "12:30", "tool_name": "clock"},
            {"role": "user", "content": "Say it."},
        ]
        lines = _lines(
            client.post("/api/chat", json={**body, "messages": later, "tools": [CLOCK], "stream": True})
        )
        assert lines[-1]["done"] and all("message" in line for line in lines)
        for line in lines:
            for made in line["message"].get("tool_calls", []):
                assert made["function"] == {"name": "clock", "arguments": {}}


def test_models_are_listed_and_described(server: Serving) -> None:
    with server.client() as client:
        (model,) = client.get("/api/tags").json()["models"]
        assert model["name"] == "SmolLM2-135M-Instruct" and len(model["digest"]) == 64
        shown = client.post("/api/show", json={"model": MODEL}).json()
        assert shown["capabilities"] == ["completion", "tools"]
        assert shown["model_info"]["aici.context_length"] == 8192
        assert client.get("/api/version").json() == client.get("/version").json()
        for path, empty in (("/api/generate", {}), ("/api/chat", {"messages": []})):
            loaded = client.post(path, json={"model": MODEL, **empty}).json()
            assert loaded["done"] and loaded["done_reason"] == "load"


@pytest.mark.parametrize(
    ("path", "fields", "status", "words"),
    [
        ("generate", {"model": "llama3"}, 404, "there is no model 'llama3'"),
        ("generate", {"suffix": "x"}, 400, "does not fill in"),
        ("generate", {"images": ["x"]}, 400, "images: this field is not supported"),
        ("generate", {"template": "x"}, 400, "template"),
        ("generate", {"raw": True, "system": "x"}, 400, "a system message needs a chat template"),
        ("generate", {"options": {"mirostat": 1}}, 400, "options.mirostat"),
        ("generate", {"options": {"temprature": 1}}, 400, "options.temprature"),
        ("generate", {"options": {"repeat_penalty": 1.1}}, 400, "add repeat_last_n -1"),
        ("generate", {"format": {"type": "strin"}}, 400, "strin"),
        ("generate", {"think": True}, 400, "leave out reasoning_effort (in Ollama's API: think)"),
        ("generate", {"logprobs": True}, 400, "logprobs"),
        ("chat", {"messages": [{"role": "user", "content": "x", "images": ["x"]}]}, 400, "images"),
        ("show", {"model": "x"}, 404, "there is no model"),
        ("nothing", {}, 404, "there is no route"),
    ],
)
def test_invalid_requests_get_errors_of_ollama(
    server: Serving, path: str, fields: dict[str, Any], status: int, words: str
) -> None:
    with server.client() as client:
        prompt = {"prompt": "x"} if path == "generate" else {}
        answer = client.post(f"/api/{path}", json={"model": MODEL, **prompt, **fields})
    assert answer.status_code == status, answer.text
    assert set(answer.json()) == {"error"} and words in answer.json()["error"]


@pytest.mark.parametrize(
    ("kind", "least"),
    [
        (Options, {}),
        (GenerateRequest, {"model": MODEL}),
        (ChatBody, {"model": MODEL}),
        (Message, {"role": "user"}),
        (ToolCall, {"function": {"name": "clock"}}),
        (CalledFunction, {"name": "clock"}),
        (ModelName, {"model": MODEL}),
    ],
)
def test_null_is_unset(kind: type[Part], least: dict[str, Any]) -> None:
    """Clients send null for every option that they know and the user has not set, ours or not."""
    nulls = dict.fromkeys([*kind.model_fields, "mirostat_eta"])
    found = kind.model_validate({**nulls, **least})
    assert found == kind.model_validate(least) and found.model_fields_set == set(least)
    described = kind.model_json_schema()
    for name in set(kind.model_fields) - set(least):
        assert {"type": "null"} in described["properties"][name]["anyOf"], name
    for name in least:
        with pytest.raises(ValueError, match="Field required"):
            kind.model_validate({**least, name: None})


def test_unset_options_are_answered(server: Serving) -> None:
    """LangChain sends them all."""
    names = ("temperature", "mirostat", "mirostat_tau", "num_ctx", "stop", "seed", "top_k", "repeat_penalty")
    body = {
        "model": "default",
        "stream": False,
        "format": "",
        "keep_alive": None,
        "messages": [{"role": "user", "content": "Hi"}],
        "options": {"num_predict": 2, **dict.fromkeys(names)},
    }
    with server.client() as client:
        assert client.post("/api/chat", json=body).json()["eval_count"] == 2
        answer = client.post("/api/chat", json={**body, "options": {"mirostat": 1}})
        assert answer.status_code == 400 and "options.mirostat: " in answer.json()["error"]


def test_repetition_penalty_over_all_tokens_is_supported(server: Serving) -> None:
    options = {**GREEDY, "repeat_penalty": 1.3, "repeat_last_n": -1, "stop": ["\n"]}
    with server.client() as client:
        body = {**USUAL, "prompt": "a a a a", "raw": True, "stream": False, "options": options}
        assert client.post("/api/generate", json=body).json()["done"]


def test_our_client_of_ollama_gets_completions(server: Serving) -> None:
    """An editor's request of character-prefix completion, with this server in the place of Ollama."""

    async def complete() -> str:
        request = CpcRequest.model_validate({"context": "x = 1\n", "prefix": "pri", "max_new_tokens": 8})
        completion = OllamaCompletion(request, server.url, MODEL, 1)
        return "".join([piece async for piece in completion.chunks()])

    assert asyncio.run(complete()).startswith("pri")


def test_models_that_fill_in_get_their_marks() -> None:
    user = User("eve", Role.RUN)
    body = GenerateRequest.model_validate(
        {"model": "m", "prompt": "def f(", "suffix": "return x", "raw": True}
    )
    with pytest.raises(ApiError, match="does not fill in"):
        _plan_text(byte_model("x"), body, user)
    model = byte_model("x", ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"])
    plan = _plan_text(model, body, user)
    text = "<|fim_prefix|>def f(<|fim_suffix|>return x<|fim_middle|>"
    assert model.tokenizer.decode(plan.job.prompt) == text
    assert [token for token in plan.job.prompt if token >= 256 or model.token_text(token)[0] == "<"]
