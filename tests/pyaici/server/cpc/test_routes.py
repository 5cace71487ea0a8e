"""Character-prefix completion with a real server and the default model."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.pyaici.server.serving import Serving

HELLO: dict[str, Any] = {"context": "def hello_world():\n    ", "prefix": "pri"}


def _complete(server: Serving, query: str = "", **fields: Any) -> dict[str, Any]:
    with server.client() as client:
        answer = client.post(f"/cpc{query}", json={**HELLO, **fields})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def _stream(server: Serving, **fields: Any) -> list[tuple[str, Any]]:
    """Returns (event, data) of all events, in order."""
    with server.client() as client, client.stream("POST", "/cpc_stream", json={**HELLO, **fields}) as answer:
        assert answer.status_code == 200
        assert answer.headers["cache-control"] == "no-cache" and answer.headers["x-accel-buffering"] == "no"
        text = answer.read().decode()
    found = re.findall(r"event: (\w+)\ndata: (.*)\n\n", text)
    return [(name, json.loads(data)) for name, data in found]


def test_usual_request(server: Serving) -> None:
    full = {"max_new_tokens": 40, "temperature": 0.5, "top_p": 0.92, "top_k": 50, "code_only": True}
    answer = _complete(server, **full)
    assert answer["suggestion"].startswith("print") and "\n" not in answer["suggestion"]
    assert answer["backend"] == "pcas" and isinstance(answer["calls_prefix"], int) and answer["debug"]
    certificate = answer["certificate"]
    assert (
        certificate["sampler"] == "exact" and certificate["tv_bound"] == 0 and not certificate["approximate"]
    )
    assert certificate["log_z_lower"] <= certificate["log_z"] <= certificate["log_z_upper"] <= 0


@pytest.mark.parametrize("temperature", [5e-324, 1e-9, 1e-5, 2])
@pytest.mark.parametrize("sampler", ["exact", "enumerate", "pcas", "heal"])
def test_extreme_temperatures_keep_the_prefix(server: Serving, sampler: str, temperature: float) -> None:
    answer = _complete(server, sampler=sampler, temperature=temperature, max_new_tokens=1, top_p=1e-300)
    assert answer["suggestion"].startswith("pri")


@pytest.mark.parametrize("sampler", ["exact", "enumerate", "pcas", "heal"])
def test_every_sampler_keeps_the_prefix(server: Serving, sampler: str) -> None:
    for seed in range(3):
        answer = _complete(server, sampler=sampler, seed=seed, max_new_tokens=3, temperature=1.0)
        assert answer["suggestion"].startswith("pri"), answer
        assert answer["certificate"]["sampler"] == sampler
    if sampler == "pcas":
        assert any(re.match(r"\[branch\] \|A\|=\d+|\[forced\] '", line) for line in answer["debug"])


def test_earlier_evaluations_are_reused(server: Serving) -> None:
    context = "import os\n\ndef files(folder):\n    return os."
    first = _complete(server, context=context, prefix="lis", max_new_tokens=1)
    again = _complete(server, context=context, prefix="list", max_new_tokens=1)
    assert first["certificate"]["model_evals"] > 0
    assert again["certificate"]["model_evals"] <= 1
    assert (
        _complete(server, context=context, prefix="lis", max_new_tokens=1)["certificate"]["model_evals"] == 0
    )


@pytest.mark.parametrize(
    ("context", "prefix"),
    [
        ("", "x"),
        ("", ""),
        ("a = ", ""),
        ("x = 'caf", "é"),
        ("# 日本", "語"),
        ("#", "  \t"),
        ("a", "<|endoftext|>"),
    ],
)
def test_unusual_prefixes_are_kept(server: Serving, context: str, prefix: str) -> None:
    answer = _complete(server, context=context, prefix=prefix, max_new_tokens=3, temperature=0)
    assert answer["suggestion"].startswith(prefix)


def test_without_healing_the_prefix_is_kept(server: Serving) -> None:
    answer = _complete(server, heal_context=False, max_new_tokens=2)
    assert answer["suggestion"].startswith("pri")


def test_suggestion_ends_with_its_line_or_code_block(server: Serving) -> None:
    for seed in range(4):
        answer = _complete(
            server, context="```python\n", prefix="x", seed=seed, temperature=1.0, max_new_tokens=30
        )
        assert "\n" not in answer["suggestion"] and "```" not in answer["suggestion"]
    assert _complete(server, max_new_tokens=0)["suggestion"].startswith("pri")
    named = _complete(server, lang="python", max_new_tokens=4)
    assert named["suggestion"].startswith("pri")


def test_stream_equals_the_whole_suggestion(exact_server: Serving) -> None:
    fields = {"seed": 7, "temperature": 1.0, "max_new_tokens": 16}
    whole = _complete(exact_server, **fields)
    events = _stream(exact_server, **fields)
    names = [name for name, _ in events]
    assert names[:3] == ["meta", "ttfb", "chunk"] and names[-1] == "done" and set(names[2:-1]) == {"chunk"}
    assert events[0][1] == {"backend": "pcas"} and isinstance(events[1][1]["ms"], int)
    assert "".join(data["text"] for name, data in events if name == "chunk") == whole["suggestion"]
    done = events[-1][1]
    assert done["tokens_emitted"] == whole["tokens_emitted"] and isinstance(done["ms_total"], int)
    assert {"calls_prefix", "certificate"} <= set(done)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prefix": None}, "prefix"),
        ({"prefix": "x" * 2000}, "prefix"),
        ({"prefix": "\ud800"}, "prefix"),
        ({"mode": "magic"}, "mode"),
        ({"sampler": "magic"}, "sampler"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"lang": "a b"}, "lang"),
        ({"tempe": 1}, "tempe"),
        ({"context": "word " * 9000}, "context"),
    ],
)
def test_invalid_requests_are_refused(server: Serving, fields: dict[str, Any], param: str) -> None:
    content = json.dumps({**HELLO, **fields})
    for path in ("/cpc", "/cpc_stream"):
        with server.client() as client:
            answer = client.post(path, content=content, headers={"content-type": "application/json"})
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]["param"] == param


def test_unavailable_backend_is_refused(server: Serving) -> None:
    with server.client() as client:
        assert client.post("/cpc?backend=other", json=HELLO).status_code == 400
        for path, mode, param in (
            ("/cpc?backend=ollama", None, "backend"),
            ("/cpc", "ollama", "mode"),
            ("/cpc_stream", "ollama", "mode"),
        ):
            answer = client.post(path, json={**HELLO, "mode": mode})
            error = answer.json()["error"]
            assert answer.status_code == 400 and error["param"] == param
            assert "--ollama-url" in error["message"]


def test_max_evals_is_bounded_by_the_server(server: Serving) -> None:
    with server.client() as client:
        refused = client.post("/cpc", json={**HELLO, "max_evals": 4096})
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "max_evals"
    assert "this server allows 512" in refused.json()["error"]["message"]
    assert _complete(server, max_evals=512, max_new_tokens=1)["suggestion"].startswith("pri")
