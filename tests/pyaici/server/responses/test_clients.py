"""The Responses API with the official client: streams, parsed and stored responses, reasoning, failures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import openai
import pytest
from pydantic import BaseModel, Field

from lab.servers.tiny_model import make_tiny_model
from lab.system.fetch import pypi_unpacked
from lab.system.waiting import PATIENCE, wait_until
from tests.pyaici.server.openai.test_reasoning import TEMPLATE
from tests.pyaici.server.responses.definition import check_events, check_response
from tests.pyaici.server.serving import Serving


class City(BaseModel):
    """A city, as the model has to write it."""

    name: Annotated[str, Field(max_length=12)]
    capital: bool


def _client(server: Serving, token: str = "none") -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key=token, max_retries=0, timeout=PATIENCE)


@pytest.fixture(scope="module")
def client(server: Serving, tokens: dict[str, str]) -> openai.OpenAI:
    return _client(server, tokens["eve"])


def _ask(client: openai.OpenAI, **options: Any) -> Any:
    settings: dict[str, Any] = {"model": "default", "input": "Is Oslo a capital?", "temperature": 0}
    return client.responses.create(**{**settings, "max_output_tokens": 20, **options})


def test_answer_equals_its_stream(exact_server: Serving, tokens: dict[str, str]) -> None:
    client = _client(exact_server, tokens["eve"])
    options: dict[str, Any] = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    whole = _ask(client, **options)
    (item,) = whole.output
    logprobs = item.content[0].logprobs
    assert "".join(entry.token for entry in logprobs).startswith(whole.output_text)
    assert all(len(entry.top_logprobs) == 2 for entry in logprobs)
    with client.responses.stream(
        model="default", input="Is Oslo a capital?", temperature=0, max_output_tokens=20, **options
    ) as stream:
        events = list(stream)
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    sent = [
        entry for event in events if event.type == "response.output_text.delta" for entry in event.logprobs
    ]
    assert text == whole.output_text and [entry.token for entry in sent] == [e.token for e in logprobs]


def test_parsed_answer_follows_its_type(client: openai.OpenAI) -> None:
    response = client.responses.parse(
        model="default", input="Is Oslo a capital?", temperature=0, text_format=City, max_output_tokens=100
    )
    assert isinstance(response.output_parsed, City)
    anything = _ask(client, text={"format": {"type": "json_object"}}, max_output_tokens=200)
    # the object of a small model may be longer than the limit
    assert anything.output_text.lstrip().startswith("{")
    assert anything.status == "incomplete" or isinstance(json.loads(anything.output_text), dict)


def test_constraints_of_chats_apply(client: openai.OpenAI) -> None:
    assert _ask(client, extra_body={"choice": ["Yes.", "No."]}).output_text in ("Yes.", "No.")
    tools = [{"type": "function", "name": name, "parameters": {"type": "object"}} for name in ("a", "b")]
    only = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "b"}]}
    calls = _ask(client, tools=tools, tool_choice=only, max_output_tokens=200).output
    assert {call.name for call in calls if call.type == "function_call"} == {"b"}
    text = _ask(client, tools=tools, tool_choice="none").output
    assert [item.type for item in text] == ["message"]


def test_stored_responses_belong_to_their_user(server: Serving, tokens: dict[str, str]) -> None:
    eve, bob = _client(server, tokens["eve"]), _client(server, tokens["bob"])
    made = _ask(eve, metadata={"a": "b"})
    assert eve.responses.retrieve(made.id).model_dump() == made.model_dump()
    with pytest.raises(openai.BadRequestError, match="leave out stream"):
        eve.responses.retrieve(made.id, stream=True)
    for call in (
        lambda: bob.responses.retrieve(made.id),
        lambda: bob.responses.delete(made.id),
        lambda: _ask(bob, previous_response_id=made.id),
    ):
        with pytest.raises(openai.NotFoundError, match="there is no response"):
            call()
    why = {"role": "user", "content": "Why?"}
    (item,) = made.output
    by_id: list[Any] = [{"type": "item_reference", "id": item.id}, {"id": item.id}, why]
    sent = [*[item.model_dump(exclude_none=True)] * 2, why]
    assert _ask(eve, input=by_id).usage.input_tokens == _ask(eve, input=sent).usage.input_tokens
    with pytest.raises(openai.NotFoundError, match="there is no stored item"):
        _ask(bob, input=by_id)
    eve.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError) as missing:
        _ask(eve, previous_response_id=made.id)
    assert missing.value.param == "previous_response_id" and missing.value.type == "not_found"
    unstored = _ask(eve, store=False)
    assert unstored.store is False
    with pytest.raises(openai.NotFoundError):
        eve.responses.retrieve(unstored.id)


def test_failing_controller_ends_a_stream_with_its_error(server: Serving, client: openai.OpenAI) -> None:
    extra = {"controller": "guest", "controller_arg": "mid_trap", "ignore_eos": True}
    with pytest.raises(openai.APIError, match="trap"):
        _ask(client, extra_body=extra)
    with pytest.raises(openai.APIError, match="trap") as raised:
        list(_ask(client, extra_body=extra, stream=True))
    assert not isinstance(raised.value, openai.APIStatusError)
    *_, failed, last = events = server.events("/v1/responses", input="Hi", stream=True, **extra)
    assert check_events(events)[-2:] == ["error", "response.failed"]
    assert "trap" in failed["error"]["message"] and last["response"]["error"]["code"] == "trap"


def test_stream_retracts_text_of_a_backtracking_controller(exact_server: Serving) -> None:
    body = {"input": "Hello", "max_output_tokens": 60, "temperature": 0, "seed": 1, "controller": "showcase"}
    events = exact_server.events("/v1/responses", **body, stream=True)
    check_events(events)
    assert any("backtrack" in event for event in events)
    with exact_server.client() as client:
        whole = client.post("/v1/responses", json=body).json()
    assert events[-1]["response"]["output"][0]["content"] == whole["output"][0]["content"]


def test_client_that_disconnects_cancels_the_response(server: Serving, client: openai.OpenAI) -> None:
    name = 'aici_sequences_ended_total{error="",reason="cancelled"}'
    before = server.metrics().get(name, 0)
    with _ask(
        client, input="Count to 1000.", max_output_tokens=1000, stream=True, extra_body={"ignore_eos": True}
    ) as s:
        first = next(iter(s))
    wait_until(lambda: server.metrics().get(name, 0) > before)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.response.id)


# the agent sends what the client of OpenAI sends, with which all other tests of this folder ask
@pytest.mark.thorough
def test_agent_of_pydantic_ai_works(server: Serving, tokens: dict[str, str]) -> None:
    """The packages are fetched for this test, since nothing else needs them."""
    packages = ("pydantic-ai-slim", "pydantic-graph", "genai-prices", "logfire-api")
    paths = os.pathsep.join(str(pypi_unpacked(package)) for package in packages)
    command = [sys.executable, str(Path(__file__).with_name("agent.py")), server.url]
    run = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": paths, "AICI_TOKEN": tokens["eve"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert found["text"] and found["next"] and found["streamed"] and 0 < found["tokens"] <= 60
    for name in ("call", "schema"):
        assert City.model_validate(found[name])


# -- reasoning ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server with random weights: it reasons until it is stopped."""
    folder = tmp_path_factory.mktemp("thinker")
    model = make_tiny_model(folder / "model", TEMPLATE)
    with Serving(folder / "log", "--engine", "hf", "--model", str(model)) as serving:
        yield serving


def test_reasoning_is_an_item_of_its_own(thinker: Serving) -> None:
    client = _client(thinker)
    extra = {"ignore_eos": True}
    response = _ask(client, extra_body=extra)
    with thinker.client() as raw:
        check_response(raw.get(f"/v1/responses/{response.id}").json())
    (item,) = response.output
    assert item.type == "reasoning" and item.content[0].type == "reasoning_text" and item.content[0].text
    assert response.usage.output_tokens_details.reasoning_tokens == response.usage.output_tokens == 20
    body = {"input": "Hi", "max_output_tokens": 8, "stream": True, "ignore_eos": True}
    types = check_events(thinker.events("/v1/responses", **body))
    assert "response.reasoning.delta" in types and types[-1] == "response.incomplete"
    with client.responses.stream(
        model="default", input="Hi", max_output_tokens=8, extra_body=extra
    ) as stream:
        *_, last = stream
    assert last.type == "response.incomplete" and last.response.output[0].type == "reasoning"
    quiet = _ask(client, reasoning={"effort": "none"}, extra_body=extra)
    assert [item.type for item in quiet.output] == ["message"]
    assert quiet.usage.output_tokens_details.reasoning_tokens == 0
    # earlier reasoning is read, and left out of the prompt
    _ask(client, previous_response_id=response.id, input="And?")
    _ask(
        client, input=[*response.model_dump(exclude_none=True)["output"], {"role": "user", "content": "And?"}]
    )
