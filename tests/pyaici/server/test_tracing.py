"""Traces and metrics that a real OTLP receiver gets from a real server."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from lab.servers.tiny_model import make_tiny_model
from lab.system.waiting import PATIENCE, wait_until
from tests.pyaici.server.serving import Serving
from tests.pyaici.tools.support import server as tools_server

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SCRIPT = (
    'from aici import *\nasync def main():\n    await force(str(await call("secret_sum", [20001, 30002])))\n'
)


@dataclass
class Receiver:
    """Collects the spans that arrive."""

    url: str = ""
    spans: list[Any] = field(default_factory=list)
    resources: list[Any] = field(default_factory=list)
    #: the newest points of each metric, which are sums since the start
    points: dict[str, list[Any]] = field(default_factory=dict)
    #: how often they came
    exports: int = 0

    def of_trace(self, trace: str, root: str) -> list[Any]:
        """Returns the spans of a trace when its outermost one and all others' parents are there."""
        until = time.monotonic() + PATIENCE
        while True:
            spans = [span for span in list(self.spans) if span.trace_id.hex() == trace]
            known = {span.span_id for span in spans}
            if any(span.name == root for span in spans) and all(
                span.name == root or span.parent_span_id in known for span in spans
            ):
                return spans
            assert time.monotonic() < until, spans
            time.sleep(0.02)


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    received = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/v1/metrics":
                received.exports += 1
                for measured in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                    for scope in measured.scope_metrics:
                        for one in scope.metrics:
                            received.points[one.name] = list(one.histogram.data_points)
            else:
                for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    received.resources.append(resource.resource)
                    for scope in resource.scope_spans:
                        received.spans += scope.spans
            self.send_response(200)
            self.end_headers()

        def do_GET(self) -> None:
            body = str(self.headers["traceparent"]).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=[0.01])
    thread.start()
    try:
        received.url = f"http://127.0.0.1:{server.server_address[1]}"
        yield received
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(scope="module")
def server(receiver: Receiver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("server")
    model = make_tiny_model(folder / "tiny")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        patch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        patch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "100")
        patch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
        tools = ["--mcp", tools_server("calc"), "--http-allow", f"{receiver.url}/seen"]
        options = ["--otel", "--requests-per-minute", "0", "--model", str(model)]
        with Serving(folder / "log", *options, *tools) as serving:
            yield serving


def attributes(span: Any) -> dict[str, Any]:
    values = {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}
    return {
        name: [part.string_value for part in value.values] if hasattr(value, "values") else value
        for name, value in values.items()
    }


def test_a_request_is_traced_from_its_caller_to_its_calls(server: Serving, receiver: Receiver) -> None:
    script = {"language": "python", "source": SCRIPT}
    body = {"script": script, "prompt": "a private prompt", "seed": 7, "calls": [{"name": "secret_sum"}]}
    head = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
    with server.client() as client, client.stream("POST", "/v1/run", json=body, headers=head) as run:
        for line in filter(lambda line: line.startswith("data: {"), run.iter_lines()):
            for call in json.loads(line.removeprefix("data: ")).get("calls", ()):
                if call.get("name") == "secret_sum":
                    answered = client.post(f"/v1/run/calls/{call['id']}", json={"value": 50003})
                    assert answered.status_code == 200, answered.text
    found = receiver.of_trace(TRACE, "POST /v1/run")
    spans = {span.name: span for span in found}
    request, generation = spans["POST /v1/run"], spans[f"text_completion {model_name(server)}"]
    assert request.parent_span_id.hex() == PARENT
    parents = {name: span.parent_span_id for name, span in spans.items()}
    assert parents["prepare"] == parents["execute_tool secret_sum"] == generation.span_id
    assert parents["queue"] == generation.parent_span_id == request.span_id
    # by name, since an exporter that got no answer in time sends again; FastAPI would add spans of its own
    assert set(spans) == {request.name, "queue", generation.name, "prepare", "execute_tool secret_sum"}
    assert len({span.span_id for span in found}) == len(spans)
    known = attributes(request)
    assert (known["http.route"], known["http.response.status_code"]) == ("/v1/run", 200)
    known = attributes(generation)
    assert known["aici.controller"] == "pyctrl" and known["gen_ai.request.seed"] == 7
    assert known["gen_ai.response.finish_reasons"] == ["stop"]
    assert known["gen_ai.usage.input_tokens"] > 0 and known["gen_ai.usage.output_tokens"] > 0
    for span in found:
        assert span.start_time_unix_nano <= span.end_time_unix_nano
        for text in ("private", "20001", "50003"):
            assert text not in str(span)
    (resource,) = {str(one) for one in receiver.resources}
    assert '"aici"' in resource and "deployment.environment.name" in resource


def test_tools_get_the_trace_of_the_request(server: Serving, receiver: Receiver) -> None:
    source = f"""
from aici import *
async def main():
    by_mcp = await call("calc.trace", {{}})
    by_http = (await call("http", url="{receiver.url}/seen"))["body"]
    set_var("seen", by_mcp + " " + by_http)
"""
    body = {"script": {"language": "python", "source": source}, "prompt": "x", "calls": []}
    trace = TRACE[1:] + TRACE[:1]
    head = {"traceparent": f"00-{trace}-{PARENT}-01"}
    with server.client() as client:
        answer = client.post("/v1/run", json=body, headers=head).text
    seen = re.search(r'"seen": ?"([^"]*)"', answer)
    assert seen is not None, answer
    (request,) = (span for span in receiver.of_trace(trace, "POST /v1/run") if span.name == "POST /v1/run")
    assert seen[1].split() == [f"00-{trace}-{request.span_id.hex()}-01"] * 2


def model_name(server: Serving) -> str:
    with server.client() as client:
        return str(client.get("/ready").json()["model"])


def test_failures_have_their_code(server: Serving, receiver: Receiver) -> None:
    trace = TRACE[::-1]
    with server.client() as client:
        head = {"traceparent": f"00-{trace}-{PARENT}-01"}
        body = {"controller": "regex", "controller_arg": "[0-9", "prompt": "x"}
        assert client.post("/v1/run", json=body, headers=head).status_code == 400
    found = receiver.of_trace(trace, "POST /v1/run")
    spans = {span.name.partition(" ")[0]: span for span in found}
    assert attributes(spans["POST"])["http.response.status_code"] == 400
    assert attributes(spans["text_completion"])["error.type"] == "argument"


def test_a_request_without_a_trace_begins_one(server: Serving, receiver: Receiver) -> None:
    with server.client() as client:
        assert client.get("/health", headers={"traceparent": "00-nonsense"}).status_code == 200
    until = time.monotonic() + PATIENCE
    while not (found := [span for span in list(receiver.spans) if span.name == "GET /health"]):
        assert time.monotonic() < until
        time.sleep(0.02)
    assert not found[0].parent_span_id


def test_generations_are_measured(server: Serving, receiver: Receiver) -> None:
    def tokens() -> dict[str, tuple[int, float]]:
        first = receiver.exports
        wait_until(lambda: receiver.exports >= first + 2)  # the second one began after this call
        known = [(attributes(one), one) for one in receiver.points["gen_ai.client.token.usage"]]
        return {about["gen_ai.token.type"]: (one.count, one.sum) for about, one in known}

    server.run(controller="yesno", prompt="Is it?")
    before = tokens()
    assert before.keys() == {"input", "output"}
    result = server.run(controller="yesno", prompt="Is it?")
    written = result["usage"]["completion_tokens"]
    assert tokens()["output"] == (before["output"][0] + 1, before["output"][1] + written)
    for name in ("gen_ai.server.request.duration", "gen_ai.server.time_to_first_token"):
        (about,) = [attributes(one) for one in receiver.points[name] if "error.type" not in attributes(one)]
        assert about == {
            "gen_ai.operation.name": "text_completion",
            "gen_ai.provider.name": "aici",
            "gen_ai.request.model": model_name(server),
        }
    with server.client() as client:
        body = {"controller": "regex", "controller_arg": "[0-9", "prompt": "x"}
        assert client.post("/v1/run", json=body).status_code == 400
        failing = {"language": "python", "source": "async def main():\n    raise ValueError('x')"}
        assert client.post("/v1/run", json={"script": failing, "prompt": "x"}).status_code == 200
    tokens()
    durations = receiver.points["gen_ai.server.request.duration"]
    assert {"argument", "failed"} <= {attributes(one).get("error.type") for one in durations}
    assert "http.server.request.duration" in receiver.points
