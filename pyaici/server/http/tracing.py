"""Traces and metrics of OpenTelemetry: spans of HTTP requests, and in them of waits, generations and calls.

Without `--otel`, the package opentelemetry-api makes spans that nobody records; nothing is done in the steps
of the engine in either case. Names follow OpenTelemetry's conventions for HTTP and for generative AI, as of
semantic conventions 1.37. Spans have no texts: neither prompts nor answers nor arguments. FastAPI measures
HTTP requests itself, and `GET /metrics` has everything that the server counts.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from opentelemetry import metrics, propagate, trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from aicirt.contract.errors import AiciError

if TYPE_CHECKING:
    from pyaici.engines.engine import GenerationResult

_tracer, _meter = trace.get_tracer("pyaici.server"), metrics.get_meter("pyaici.server")
#: histograms of generations, with the bounds that the conventions name
_DURATION = _meter.create_histogram(
    "gen_ai.server.request.duration",
    "s",
    "Time of a generation.",
    explicit_bucket_boundaries_advisory=[0.01 * 2**power for power in range(14)],
)
_FIRST = _meter.create_histogram(
    "gen_ai.server.time_to_first_token",
    "s",
    "Time to the first token of a generation.",
    explicit_bucket_boundaries_advisory=[
        *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    ],
)
_TOKENS = _meter.create_histogram(
    "gen_ai.client.token.usage",
    "{token}",
    "Tokens that a generation has read or written.",
    explicit_bucket_boundaries_advisory=[4**power for power in range(14)],
)


@contextmanager
def exporting(wanted: bool) -> Iterator[None]:
    """Sends spans and metrics to an OTLP collector inside the block, as the variables of OpenTelemetry say.

    Raises AiciError if the packages are missing.
    """
    if not wanted:
        yield
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        raise AiciError(f"--otel needs the package {error.name}: pip install 'pyaici[otel]'") from None
    named = Resource({"service.name": "aici"}).merge(OTELResourceDetector().detect())
    resource = Resource.create().merge(named)
    spans = TracerProvider(resource=resource)
    spans.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(spans)
    measured = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())], resource)
    metrics.set_meter_provider(measured)
    try:
        yield
    finally:
        spans.shutdown()
        measured.shutdown()


@contextmanager
def request_span(method: str, headers: Mapping[str, str]) -> Iterator[Span]:
    """Traces an HTTP request, in the trace that its `traceparent` names. The span is the current one."""
    attributes = {"http.request.method": method}
    with _tracer.start_as_current_span(
        method, propagate.extract(headers), SpanKind.SERVER, attributes, record_exception=False
    ) as span:
        yield span


def trace_parent() -> str:
    """Returns the current span as a W3C `traceparent`, or "" if nothing is traced."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return carrier.get("traceparent", "")


def end_request(span: Span, method: str, route: str, status: int) -> None:
    """Writes how a request ended. `route`: "" if there is none."""
    if route:
        span.update_name(f"{method} {route}")
        span.set_attribute("http.route", route)
    span.set_attribute("http.response.status_code", status)
    if status >= 500:
        span.set_status(Status(StatusCode.ERROR))


@dataclass
class Generation:
    """A generation that is traced."""

    span: Span
    #: how it ended, without any result if it was cancelled; None if it did not begin
    results: Sequence[GenerationResult] | None = None


@contextmanager
def tracing_generation(model: str, controller: str | None, options: dict[str, Any]) -> Iterator[Generation]:
    """Traces and measures a generation. `options`: attributes after `gen_ai.request.`; None is left out."""
    about = {
        "gen_ai.operation.name": "text_completion",
        "gen_ai.provider.name": "aici",
        "gen_ai.request.model": model,
    }
    wanted = {f"gen_ai.request.{name}": value for name, value in options.items() if value is not None}
    attributes = wanted | about
    if controller is not None:
        attributes["aici.controller"] = controller
    generation = Generation(_tracer.start_span(f"text_completion {model}", attributes=attributes))
    start, code = time.perf_counter(), ""
    try:
        yield generation
    except Exception as error:
        code = str(getattr(error, "code", None) or type(error).__name__)
        raise
    finally:
        for result in generation.results or ():
            if result.error is not None:
                code = code or result.error.code
        failed = {"error.type": code} if code else {}
        _DURATION.record(time.perf_counter() - start, {**about, **failed})
        if generation.results is not None:
            _write_results(generation.span, about, generation.results)
        if code:
            _mark_failed(generation.span, code)
        generation.span.end()


def _write_results(span: Span, about: dict[str, str], results: Sequence[GenerationResult]) -> None:
    if not results:
        span.set_attribute("gen_ai.response.finish_reasons", ["cancelled"])
        return
    span.set_attribute("gen_ai.response.finish_reasons", [result.finish_reason.value for result in results])
    written = sum(one.sampled + one.forced for one in results)
    for kind, tokens in (("input", results[0].prompt_tokens), ("output", written)):
        span.set_attribute(f"gen_ai.usage.{kind}_tokens", tokens)
        _TOKENS.record(tokens, {**about, "gen_ai.token.type": kind})
    first = results[0].first_token_seconds
    if first == first:
        span.set_attribute("aici.first_token_seconds", first)
        _FIRST.record(first, about)


@contextmanager
def part_of(span: Span | None, name: str) -> Iterator[None]:
    """Traces a part of a generation, or of the HTTP request."""
    with _tracer.start_span(name, None if span is None else trace.set_span_in_context(span)):
        yield


def call_span(span: Span, name: str, code: str, seconds: float) -> None:
    """Traces a call of a generation's controller that has ended, with this code of an error or ""."""
    end = time.time_ns()
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
    called = _tracer.start_span(
        f"execute_tool {name}",
        trace.set_span_in_context(span),
        attributes=attributes,
        start_time=end - int(seconds * 1e9),
    )
    if code:
        _mark_failed(called, code)
    called.end(end)


def _mark_failed(span: Span, code: str) -> None:
    span.set_attribute("error.type", code)
    span.set_status(Status(StatusCode.ERROR))
