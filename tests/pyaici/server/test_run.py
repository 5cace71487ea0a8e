"""`POST /v1/run`: events and results of runs, and refused requests."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tests.pyaici.server.serving import Serving, read_events


def _texts(events: list[Any]) -> dict[int, str]:
    """Returns the text of each fork, assembled from its steps."""
    texts: dict[int, str] = {}
    for event in events:
        if event["object"] != "run":
            continue
        for fork in event["forks"]:
            text = texts.get(fork["index"], "")
            texts[fork["index"]] = text[: len(text) - fork.get("backtrack", 0)] + fork["text"]
    return texts


def test_stream_reports_every_token_with_its_origin(server: Serving) -> None:
    schema = {"type": "object", "properties": {"temperature_in_celsius": {"type": "integer", "maximum": 99}}}
    schema |= {"required": ["temperature_in_celsius"], "additionalProperties": False}
    body = {
        "controller": "json_schema",
        "controller_arg": schema,
        "prompt": "The weather:",
        "top_logprobs": 3,
    }
    first, *steps, end = server.events(**body)
    assert first["object"] == "initial-run" and first["controller"] == "json_schema"
    assert first["prompt_tokens"] == 3
    assert end["object"] == "run.end"
    (fork,) = end["forks"]
    assert "temperature_in_celsius" in json.loads(fork["text"]) and fork["finish_reason"] == "stop"
    assert _texts(steps) == {0: fork["text"]}
    pieces = [piece for step in steps for fork in step["forks"] for piece in fork["pieces"]]
    assert {piece["origin"] for piece in pieces} == {"forced", "sampled"}
    for piece in pieces:
        if piece["origin"] == "sampled":
            assert len(piece["logprobs"]) == 1 and piece["logprobs"][0] <= 0
            (top,) = piece["top_logprobs"]
            assert [entry["logprob"] for entry in top] == sorted((e["logprob"] for e in top), reverse=True)
            assert sum(math.exp(entry["logprob"]) for entry in top) <= 1 + 1e-6
    usage = end["usage"]
    assert usage["sampled_tokens"] + usage["forced_tokens"] == sum(len(piece["tokens"]) for piece in pieces)
    assert 0 < end["timing"]["first_token_s"] <= end["timing"]["seconds"]


def test_details_report_how_many_tokens_a_mask_allowed(server: Serving) -> None:
    body = {"controller": "choice", "controller_arg": ["red", "green"], "prompt": "My colour is"}
    first, *steps, _ = server.events(**body, details=True)
    assert first["vocab_size"] == 49152
    pieces = [piece for step in steps for fork in step["forks"] for piece in fork["pieces"]]
    sampled = [piece for piece in pieces if piece["origin"] == "sampled"]
    assert sampled and all(1 <= piece["allowed"] < 20 for piece in sampled)
    assert all("allowed" not in piece for piece in pieces if piece["origin"] == "forced")
    timings = [step["timing"] for step in steps if "timing" in step]
    assert len(timings) >= len(sampled)
    assert all(0 <= timing["control_s"] <= timing["step_s"] for timing in timings)
    assert sum(timing["step_s"] for timing in timings) > 0 < sum(timing["control_s"] for timing in timings)
    _, *steps, _ = server.events(**body)
    assert all("timing" not in step for step in steps)
    assert all("allowed" not in piece for step in steps for fork in step["forks"] for piece in fork["pieces"])


def test_stream_reports_forks_and_backtracking(server: Serving) -> None:
    first, *steps, end = server.events(controller="showcase", prompt="Hello", max_tokens=60)
    assert first["controller"] == "showcase"
    texts = {fork["index"]: fork["text"] for fork in end["forks"]}
    assert len(texts) > 1
    assert _texts(steps) == texts
    assert any(piece.get("backtrack") for step in steps for fork in step["forks"] for piece in fork["pieces"])
    assert any("parent" in fork for step in steps for fork in step["forks"])
    logs = {fork["index"]: fork["log"] for fork in end["forks"]}
    assert all("mid_process" in log for log in logs.values())


def test_several_sequences_of_a_prompt(server: Serving) -> None:
    body: dict[str, Any] = {
        "prompt": "My favourite animal is",
        "max_tokens": 6,
        "temperature": 1.0,
        "seed": 1,
    }
    first, *steps, end = server.events(**body, n=3)
    texts = {fork["index"]: fork["text"] for fork in end["forks"]}
    assert _texts(steps) == texts and len(set(texts.values())) == len(texts) == 3
    assert end["usage"]["prompt_tokens"] == first["prompt_tokens"]
    assert end["usage"]["sampled_tokens"] > first["prompt_tokens"]
    controlled = server.run(**body, n=2, controller="choice", controller_arg=["cats", "dogs"])
    assert [fork["text"] in ("cats", "dogs") for fork in controlled["forks"]] == [True, True]


def test_answer_without_a_stream_equals_the_end_of_a_stream(exact_server: Serving) -> None:
    body: dict[str, Any] = {"controller": "regex", "controller_arg": "[a-z]{5}", "prompt": "x", "seed": 3}
    body |= {"temperature": 1.0, "max_tokens": 20}
    whole = exact_server.run(**body)
    assert whole["object"] == "run.result"
    assert whole["forks"] == exact_server.events(**body)[-1]["forks"]


def test_prompt_can_be_text_tokens_or_chat(server: Serving) -> None:
    text = server.run(prompt="The capital of France is", max_tokens=4)
    assert "Paris" in text["forks"][0]["text"]
    chat = server.run(messages=[{"role": "user", "content": "Say hello."}], max_tokens=4)
    assert chat["prompt_tokens"] > 10
    tokens = server.run(prompt=[504, 3575, 282], max_tokens=2)
    assert tokens["prompt_tokens"] == 3


def test_stream_reports_variables(server: Serving) -> None:
    first, *steps, end = server.events(controller="guest", controller_arg="keep 5", prompt="x", max_tokens=3)
    assert first["object"] == "initial-run"
    variables: dict[str, Any] = {}
    for step in steps:
        variables |= step.get("variables", {})
    assert end["variables"] == variables
    assert variables


@pytest.mark.parametrize(
    ("body", "status", "param", "words"),
    [
        ({}, 400, "prompt", "either"),
        ({"prompt": "a", "messages": [{"role": "user", "content": "b"}]}, 400, "prompt", "either"),
        ({"messages": []}, 400, "messages", "must not be empty"),
        ({"prompt": 1}, 400, "prompt", ""),
        ({"prompt": "a", "temprature": 1}, 400, "temprature", "did you mean temperature?"),
        ({"prompt": "a", "arg": "x"}, 400, "arg", "did you mean controller_arg?"),
        ({"prompt": "a", "temperature": 3}, 400, "temperature", "less than or equal to 2"),
        ({"prompt": "a", "n": 0}, 400, "n", "greater than or equal to 1"),
        ({"prompt": "a", "n": 33}, 400, "n", "less than or equal to 32"),
        ({"prompt": "a", "max_tokens": 0}, 400, "max_tokens", "greater than or equal to 1"),
        ({"prompt": "a", "max_tokens": 5000}, 400, "max_tokens", "this server allows 4096"),
        ({"prompt": [1, 999999]}, 400, "prompt", "below 49152"),
        ({"prompt": [1] * 9000}, 400, "prompt", "the model takes 8192"),
        ({"prompt": "a", "controller": "rgex"}, 404, "controller", "bundled"),
        ({"prompt": "a", "controller": "../../etc/passwd"}, 404, "controller", ""),
        ({"prompt": "a", "controller": "regex", "controller_arg": "(a"}, 400, "controller_arg", "column"),
        (
            {"prompt": "a", "controller": "json_schema", "controller_arg": {"type": 1}},
            400,
            "controller_arg",
            "/type",
        ),
        (
            {"prompt": "a", "controller": "kbnf", "controller_arg": "start ::= 'a"},
            400,
            "controller_arg",
            "line 1",
        ),
        ({"prompt": "a", "controller_arg": "b"}, 400, "controller_arg", "needs a controller"),
        ({"prompt": "\ud800"}, 400, "prompt", ""),
    ],
)
def test_invalid_requests_are_refused(
    server: Serving, body: dict[str, Any], status: int, param: str, words: str
) -> None:
    with server.client() as client:
        answer = client.post(
            "/v1/run", content=json.dumps(body), headers={"content-type": "application/json"}
        )
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error["param"] == param and words in error["message"], error


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"{", "not JSON"), (b"", "required"), (b"[1]", "body must be a JSON object"), (b"\xff", "")],
)
def test_invalid_bodies_are_refused(server: Serving, content: bytes, words: str) -> None:
    with server.client() as client:
        answer = client.post("/v1/run", content=content, headers={"content-type": "application/json"})
    assert answer.status_code == 400 and words in answer.json()["error"]["message"], answer.text


def test_body_not_declared_as_json_is_refused(server: Serving) -> None:
    """curl -d sends such a content type."""
    with server.client() as client:
        for header in ({"content-type": "application/x-www-form-urlencoded"}, {}):
            answer = client.post("/v1/run", content=b'{"prompt": "a"}', headers=header)
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (400, "not_json"), answer.text
            assert "content-type: application/json" in error["message"]
            assert header.get("content-type", "no content type") in error["message"]


def test_failing_controller_ends_only_its_own_run(server: Serving) -> None:
    with server.client() as client:
        body = {"prompt": "Once upon a time", "max_tokens": 30}
        with client.stream("POST", "/v1/run", json=body) as other:
            failed = server.events(controller="guest", controller_arg="mid_trap", prompt="x", max_tokens=5)
            (fork,) = failed[-1]["forks"]
            assert fork["finish_reason"] == "error" and fork["error"]["code"] == "trap"
            assert list(read_events(other))[-1]["forks"][0]["finish_reason"] in ("length", "eos")
