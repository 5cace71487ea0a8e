"""Health, readiness, metrics, request ids, documentation, CORS."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

from lab.system.waiting import PATIENCE
from tests.pyaici.server.serving import Serving, read_events

DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_health_and_readiness(server: Serving) -> None:
    with server.client() as client:
        assert client.get("/health").json() == {"status": "ok"}
        ready = client.get("/ready")
        assert ready.status_code == 200
        assert ready.json() == {
            "status": "ready",
            "engine": True,
            "aicirt": True,
            "model": "SmolLM2-135M-Instruct",
        }


def test_metrics_count_requests_tokens_and_ends(server: Serving) -> None:
    before = server.metrics()
    server.run(controller="regex", controller_arg="[a-z]{4}ing", prompt="x", max_tokens=20)
    server.run(controller="guest", controller_arg="mid_trap", prompt="x", max_tokens=5)
    server.run(controller="showcase", prompt="Hello", max_tokens=60)
    after = server.metrics()

    def grown(name: str) -> float:
        return after.get(name, 0) - before.get(name, 0)

    assert grown("aici_engine_steps_total") > 5
    assert grown("aici_engine_forks_total") >= 1
    assert grown("aici_engine_backtracked_tokens_total") >= 1
    assert grown('aici_sequences_ended_total{error="",reason="stop"}') >= 2
    assert grown('aici_sequences_ended_total{error="trap",reason="error"}') == 1
    assert grown('aici_engine_phase_seconds_total{phase="mask"}') > 0
    assert grown('aici_tokens_total{origin="forced"}') >= 1
    assert grown('aici_http_requests_total{method="POST",route="/v1/run",status="200"}') == 3
    assert grown("aici_prepare_seconds_count") == 3
    assert grown("aici_queue_seconds_count") == 3 and after["aici_waiting_requests"] == 0
    assert grown("aici_token_gap_seconds_count") > 5 and grown("aici_token_gap_seconds_sum") > 0
    assert grown("aici_first_token_seconds_count") >= 3
    assert after['aici_live_requests{controlled="true"}'] == 0
    assert "aici_controller_bytes" in after
    held, reserved, limit = (after[f'aici_cache_tokens{{kind="{k}"}}'] for k in ("held", "reserved", "limit"))
    assert reserved == 0 < held <= limit, "no request is live, and prompts are kept"
    assert after["aici_live_sequences"] == 0 and after["aici_modules"] > 0 and after["aici_templates"] > 0


def test_metrics_are_valid_for_prometheus(server: Serving) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    with server.client() as client:
        answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    families = list(text_string_to_metric_families(answer.text))
    assert len(families) > 15 and all(family.documentation for family in families)


def test_dashboard_and_documentation_name_the_figures_that_there_are(server: Serving) -> None:
    """Every query of the dashboard has a figure, with the labels that it groups by; so has every row."""
    server.run(controller="showcase", prompt="Hello", max_tokens=60)
    labels: dict[str, set[str]] = {}
    forks = 'aici_controller_events_total{event="forks"}'
    end = time.monotonic() + PATIENCE  # figures of aicirt are asked for once a second
    while not (found := server.metrics())[forks]:
        assert time.monotonic() < end
        time.sleep(0.1)
    assert found["aici_template_builds_total"] > 0 and found["aici_owner_bytes_limit"] > 0
    for series in found:
        name, _, inner = series.partition("{")
        labels.setdefault(name, set()).update(re.findall(r'(\w+)="', inner))
    dashboard = json.loads((DOCS / "grafana.json").read_text())
    used = set()
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            names = re.findall(r"aici_\w+", target["expr"])
            asked = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            asked |= set(re.findall(r"(\w+)!?=\"", target["expr"]))
            for group in re.findall(r"by \(([^)]*)\)", target["expr"]):
                asked |= set(group.split(", "))
            assert names and set(names) <= labels.keys(), target
            assert all(asked <= labels[name] for name in names), target
            used |= {re.sub("_bucket$", "", name) for name in names}
    table = (DOCS / "server_reference.md").read_text().partition("## Figures")[2].partition("## ")[0]
    names = [
        name for row in table.splitlines() for name in re.findall(r"`(aici_\w+)`", row[: row.find("|", 1)])
    ]
    documented = set(names)
    known = {re.sub("_(bucket|sum|count)$", "", name) for name in labels if not name.endswith("_created")}
    assert documented == known and len(names) == len(known)
    assert documented - used <= {"aici_tokens_total", "aici_controller_bytes_limit", "aici_owner_bytes_limit"}


def test_answers_have_request_ids(server: Serving) -> None:
    with server.client() as client:
        own = client.get("/health", headers={"x-request-id": "my-id.1"})
        assert own.headers["x-request-id"] == "my-id.1"
        server.wait_for("my-id.1 GET /health 200")
        for bad in ("a b", "x" * 65, 'a"b'):
            made = client.get("/health", headers={"x-request-id": bad}).headers["x-request-id"]
            assert re.fullmatch("[0-9a-f]{32}", made)


def test_log_reports_disconnected_clients_as_499(server: Serving) -> None:
    body = {"prompt": "Once upon a time", "max_tokens": 300}
    with server.client() as client:
        with client.stream("POST", "/v1/run", json=body, headers={"x-request-id": "gone.1"}) as answer:
            next(read_events(answer))
    server.wait_for("gone.1 POST /v1/run 499")


def test_log_contains_no_user_content(server: Serving) -> None:
    server.run(
        prompt="a secret named Rosebud", max_tokens=2, controller="regex", controller_arg="(Xanadu)?.*"
    )
    with server.client() as client:
        client.get("/Kane")
        client.post("/v1/run", json={"prompt": "Rosebud", "controller": "Xanadu"})
    assert not re.search("Rosebud|Xanadu|Kane", server.text())


def test_every_route_is_described(server: Serving) -> None:
    with server.client() as client:
        description = client.get("/openapi.json").json()
    assert {"/v1/run", "/v1/controllers", "/v1/chat/completions", "/health", "/metrics"} <= set(
        description["paths"]
    )
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            assert operation.get("description"), f"{method} {path} has no description"


def test_unknown_routes_get_404_and_wrong_methods_405(server: Serving) -> None:
    with server.client() as client:
        unknown = client.get("/v1/rum")
        assert unknown.status_code == 404
        assert unknown.json()["error"]["message"] == "there is no route /v1/rum; did you mean /v1/run?"
        unlike = client.get("/xyz")
        words = "there is no route /xyz; the nearest is /"
        assert unlike.status_code == 404 and unlike.json()["error"]["message"].startswith(words)
        page = client.get("/playground").json()["error"]["message"]
        assert page == "there is no route /playground; the playground is at /"
        refused = client.get("/v1/run")
        assert refused.status_code == 405
        assert refused.json()["error"]["message"] == "/v1/run takes POST, and not GET"
        assert refused.headers["allow"] == "POST"
        refused = client.delete("/v1/models/x")
        assert (refused.status_code, refused.headers["allow"]) == (405, "GET")


def test_preflight_of_other_origins_is_not_allowed(server: Serving) -> None:
    with server.client() as client:
        headers = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
        answer = client.options("/v1/run", headers=headers)
        assert "access-control-allow-origin" not in answer.headers
