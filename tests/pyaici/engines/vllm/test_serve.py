"""`aici serve --engine vllm`: the HTTP server with the engine for vLLM."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from tests.pyaici.server.responses.definition import check_events
from tests.pyaici.server.responses.written import check_written_calls
from tests.pyaici.server.serving import Serving
from tests.pyaici.tools.support import server as setting

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def serving(model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    log = tmp_path_factory.mktemp("server") / "log"
    arguments = ("--engine", "vllm", "--model", str(model_path), "--model-name", "small")
    with Serving(log, *arguments, "--mcp", setting("calc")) as server:
        yield server


def test_a_run_returns_its_text_and_tokens(serving: Serving) -> None:
    whole = serving.run(
        controller="regex", controller_arg="[0-9]{3}-[a-z]{4}", prompt="My code is ", max_tokens=20
    )
    assert re.fullmatch("[0-9]{3}-[a-z]{4}", whole["forks"][0]["text"])
    assert whole["forks"][0]["finish_reason"] == "stop"
    _, *steps, _ = serving.events(prompt="The capital of France is", max_tokens=4, top_logprobs=2)
    pieces = [piece for step in steps for fork in step["forks"] for piece in fork["pieces"]]
    assert len(pieces) == 4 and all(len(piece["top_logprobs"][0]) == 2 for piece in pieces)


def test_events_of_forks_and_backtracking_add_up_to_the_texts(serving: Serving) -> None:
    _, *steps, end = serving.events(controller="showcase", prompt="Hello", max_tokens=60, seed=1)
    texts: dict[int, str] = {}
    for step in steps:
        for fork in step["forks"]:
            text = texts.get(fork["index"], "")
            texts[fork["index"]] = text[: len(text) - fork.get("backtrack", 0)] + fork["text"]
    assert len(texts) > 1 and texts == {fork["index"]: fork["text"] for fork in end["forks"]}


def test_openai_completions_and_chat(serving: Serving) -> None:
    client = openai.OpenAI(base_url=f"{serving.url}/v1", api_key="none", max_retries=0, timeout=None)
    completion = client.completions.create(
        model="small", prompt="The sky is", max_tokens=5, temperature=0, logprobs=1
    )
    assert completion.choices[0].text and completion.choices[0].logprobs is not None
    chat = client.chat.completions.create(
        model="small",
        messages=[{"role": "user", "content": "Is water wet?"}],
        extra_body={"choice": ["yes", "no"]},
        temperature=0,
    )
    assert chat.choices[0].message.content in ("yes", "no")


def test_responses(serving: Serving) -> None:
    body = {"input": "Is water wet?", "choice": ["yes", "no"], "temperature": 0, "stream": True}
    events = serving.events("/v1/responses", **body)
    assert check_events(events)[-1] == "response.completed"
    first = events[-1]["response"]
    assert first["output"][0]["content"][0]["text"] in ("yes", "no")
    body |= {"input": "Why?", "previous_response_id": first["id"], "max_output_tokens": 4}
    body |= {"choice": None, "ignore_eos": True}
    events = serving.events("/v1/responses", **body)
    assert check_events(events)[-1] == "response.incomplete"
    usage = events[-1]["response"]["usage"]
    assert usage["output_tokens"] == 4 and usage["input_tokens"] > first["usage"]["input_tokens"]


def test_tools_of_mcp_servers_in_a_response_and_a_chat(serving: Serving) -> None:
    check_written_calls(serving)


@pytest.mark.real_worker  # its text has no words
def test_messages_with_a_checked_call(serving: Serving) -> None:
    tool = {
        "name": "look",
        "input_schema": {"type": "object", "properties": {"where": {"enum": ["up", "down"]}}},
    }
    body = {"model": "rwkv-world", "messages": [{"role": "user", "content": "Look up!"}], "tools": [tool]}
    body |= {
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "bnf_validation": "schema_aware",
    }
    with serving.client() as client:
        answer = client.post("/api/v1/messages", json=body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["content"][0]["name"] == "look" and answer.json()["stop_reason"] == "tool_use"


@pytest.mark.parametrize("sampler", ["exact", "enumerate", "pcas", "heal"])
def test_a_prefix_has_a_certificate(serving: Serving, sampler: str) -> None:
    body = {"context": "def hello_world():\n    ", "prefix": "pri", "max_new_tokens": 5, "sampler": sampler}
    with serving.client() as client:
        answer = client.post("/cpc", json=body).json()
    assert answer["suggestion"].startswith("pri")
    certificate = answer["certificate"]
    assert certificate["model_evals"] is not None
    if sampler == "exact":
        assert certificate["log_z_lower"] <= certificate["log_z"] <= certificate["log_z_upper"] < 0
        assert (certificate["tv_bound"], certificate["approximate"]) == (0, False)


def test_errors_of_controllers_are_reported(serving: Serving) -> None:
    with serving.client() as client:
        answer = client.post("/v1/run", json={"prompt": "a", "controller": "regex", "controller_arg": "(a"})
        assert answer.status_code == 400 and answer.json()["error"]["param"] == "controller_arg"
        assert client.post("/v1/run", json={"prompt": "a", "controller": "nobody"}).status_code == 404


def test_the_server_shuts_down_cleanly(serving: Serving) -> None:
    assert serving.stop() == 143
    assert "Traceback" not in serving.text()
