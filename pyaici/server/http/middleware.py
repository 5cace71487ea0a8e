"""Middleware around every request: its id, its line in the log, and its metrics.

Unexpected exceptions are answered here, so that these answers have an id and their log lines a status, like
all others.
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections import Counter as Tally
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.registry import Collector
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect

from aicirt.system.logs import fields
from pyaici.server.http.errors import internal, refuse
from pyaici.server.http.tracing import end_request, request_span

if TYPE_CHECKING:
    from opentelemetry.trace import Span
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from pyaici.engines.engine import GenerationResult
    from pyaici.server.http.errors import ApiError


#: codes of errors of calls that are counted by name: functions of clients may have any
_OUTCOMES = frozenset(
    (
        *("arguments", "cancelled", "failed", "gone", "http", "mcp", "owner_limit", "refused", "timeout"),
        *("too_long", "tool", "unknown_call"),
    )
)
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class CallMetrics:
    """The metrics of the calls that controllers make."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._calls = Counter(
            "aici_calls", "ended calls of controllers by outcome", ("outcome",), registry=registry
        )
        self._calls.labels("ok")
        self._call_seconds = Histogram(
            "aici_call_seconds",
            "time from a call of a controller to its end",
            buckets=_SECONDS,
            registry=registry,
        )

    def count_call(self, code: str, seconds: float) -> str:
        """Counts a call that has ended, with this code of an error, or "". Returns the outcome as counted."""
        outcome = "ok" if not code else code if code in _OUTCOMES else "other"
        self._calls.labels(outcome).inc()
        self._call_seconds.observe(seconds)
        return outcome


class Metrics:
    """The metrics of one server, in a separate registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.calls = CallMetrics(self.registry)
        labels = "method", "route", "status"
        self.requests = Counter(
            "aici_http_requests", "HTTP requests by route and status", labels, registry=self.registry
        )
        self.request_seconds = Histogram(
            "aici_http_request_seconds",
            "time to the end of an answer",
            ("route",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._live = Gauge(
            "aici_live_requests", "requests that generate now", ("controlled",), registry=self.registry
        )
        self._ended = Counter(
            "aici_sequences_ended", "ended sequences by reason", ("reason", "error"), registry=self.registry
        )
        self._tokens = Counter(
            "aici_tokens",
            "tokens of ended sequences by origin",
            ("origin",),
            registry=self.registry,
        )
        self._first = Histogram(
            "aici_first_token_seconds",
            "time from the engine's start of a request to its first token",
            buckets=_SECONDS,
            registry=self.registry,
        )
        #: time between two steps in which a request has got tokens
        self.gap = Histogram(
            "aici_token_gap_seconds",
            "time between two steps in which a request got tokens",
            buckets=_SECONDS,
            registry=self.registry,
        )
        #: time from a request's arrival in the queue to its turn
        self.queue = Histogram(
            "aici_queue_seconds",
            "time that a request waited for its turn",
            buckets=_SECONDS,
            registry=self.registry,
        )
        #: how long a task that was due had to wait for the event loop
        self.loop_stall = Histogram(
            "aici_loop_stall_seconds",
            "time that the event loop kept a task waiting that was due",
            buckets=(0.001, 0.002, *_SECONDS),
            registry=self.registry,
        )
        self._prepare = Histogram(
            "aici_prepare_seconds",
            "time for a controller to read its argument, or to find that it has been read before",
            buckets=_SECONDS,
            registry=self.registry,
        )

    def add(self, collector: Collector) -> None:
        """Adds a collector to the registry."""
        self.registry.register(collector)

    def text(self) -> bytes:
        """Returns all metrics in Prometheus' text format."""
        return generate_latest(self.registry)

    def started(self, controlled: bool) -> None:
        """Counts a request that starts to generate."""
        self._live.labels(str(controlled).lower()).inc()

    def ended(self, controlled: bool, results: list[GenerationResult] | None, error: ApiError | None) -> None:
        """Counts a request that has stopped generating.

        `results` is None if it was cancelled, or failed with `error` before its end.
        """
        self._live.labels(str(controlled).lower()).dec()
        if error is not None:
            self._ended.labels("error", error.code or error.kind).inc()
        elif results is None:
            self._ended.labels("cancelled", "").inc()
        reasons: Tally[tuple[str, str]] = Tally()
        tokens: Tally[str] = Tally()
        for result in results or ():
            reasons[result.finish_reason.value, "" if result.error is None else result.error.code] += 1
            tokens["prompt"] += result.prompt_tokens
            tokens["sampled"] += result.sampled
            tokens["forced"] += result.forced
            tokens["backtracked"] += result.backtracked
            if result.first_token_seconds == result.first_token_seconds:
                self._first.observe(result.first_token_seconds)
        for labels, count in reasons.items():
            self._ended.labels(*labels).inc(count)
        for origin, number in tokens.items():
            self._tokens.labels(origin).inc(number)

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """Measures the time of the block."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._prepare.observe(time.perf_counter() - start)


_log = logging.getLogger("aicirt.server.access")
_defects = logging.getLogger("aicirt.server")
#: only for the log and the metrics: the client disconnected before there was an answer
_GONE = 499
#: other methods are counted together, since clients can send any name
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})
_ID = re.compile(rb"[A-Za-z0-9._:-]{1,64}")


class RequestIds:
    """Gives each request an id, the client's own if it sent one, and logs how the request ended."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles an ASGI request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        with request_span(_method(scope), Headers(scope=scope)) as span:
            await self._handle(scope, receive, send, span)

    async def _handle(self, scope: Scope, receive: Receive, send: Send, span: Span) -> None:
        sent = dict(scope["headers"]).get(b"x-request-id", b"")
        request_id = sent.decode() if _ID.fullmatch(sent) else uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id
        status, start = 0, time.perf_counter()
        whole = gone = False

        async def send_with_id(message: Message) -> None:
            nonlocal status, whole
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", request_id.encode())]
            await send(message)
            whole = message["type"] == "http.response.body" and not message.get("more_body", False)

        async def receive_until_gone() -> Message:
            nonlocal gone
            message = await receive()
            gone = gone or (message["type"] == "http.disconnect" and not whole)
            return message

        try:
            await self._app(scope, receive_until_gone, send_with_id)
        except ClientDisconnect:
            status = status or _GONE
        except Exception as error:
            name, about = type(error).__name__, fields(request=request_id)
            _defects.error("request %s failed: %s", request_id, name, exc_info=error, extra=about)
            # an answer that has begun cannot be completed, so the server closes the connection
            if not status:
                await refuse(scope, send_with_id, internal(request_id))
        finally:
            if gone and not whole:  # the answer did not reach the client
                status = _GONE
            self._log_request(scope, status, time.perf_counter() - start, span)

    def _log_request(self, scope: Scope, status: int, seconds: float, span: Span) -> None:
        """Counts, traces and logs a request that has ended."""
        state = scope["state"]
        # the route, not the path: what users write into paths must not be logged
        route = getattr(scope.get("route"), "path", "")
        method = _method(scope)
        end_request(span, method, route, status)
        self._metrics.requests.labels(method, route, str(status)).inc()
        self._metrics.request_seconds.labels(route).observe(seconds)
        request, name, ms = state["request_id"], getattr(state.get("user"), "name", "-"), 1000 * seconds
        known = fields(request=request, user=name, method=method, route=route, status=status, ms=round(ms, 1))
        what = (request, method, route or "-", status, ms, name)
        _log.info("%s %s %s %d in %.0f ms for %s", *what, extra=known)


def _method(scope: Scope) -> str:
    method: str = scope["method"]
    return method if method in _METHODS else "other"
