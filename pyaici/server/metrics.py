"""What Prometheus is told."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from pyaici.engines.request import GenerationResult

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """Counters of one server, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "aici_http_requests",
            "HTTP requests by route and status",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self.request_seconds = Histogram(
            "aici_http_request_seconds",
            "time to the end of an answer",
            ("route",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._live = Gauge(
            "aici_live_requests", "requests that generate", ("controlled",), registry=self.registry
        )
        self._ended = Counter(
            "aici_sequences_ended", "sequences by why they ended", ("reason", "error"), registry=self.registry
        )
        self._tokens = Counter(
            "aici_tokens",
            "tokens of ended sequences by where they came from",
            ("origin",),
            registry=self.registry,
        )
        self._first = Histogram(
            "aici_first_token_seconds",
            "from the engine's start of a request to its first token",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._prepare = Histogram(
            "aici_prepare_seconds",
            "time in which controllers read an argument, compile it, or are found to have done so",
            buckets=_SECONDS,
            registry=self.registry,
        )

    def add(self, collector: Collector) -> None:
        """Has this one be asked as well."""
        self.registry.register(collector)

    def text(self) -> bytes:
        """All figures, in Prometheus' text format."""
        return generate_latest(self.registry)

    def started(self, controlled: bool) -> None:
        """A request generates."""
        self._live.labels(str(controlled).lower()).inc()

    def ended(self, controlled: bool, results: list[GenerationResult] | None) -> None:
        """It does not any more; `results` is None if it was cancelled."""
        self._live.labels(str(controlled).lower()).dec()
        if results is None:
            self._ended.labels("cancelled", "").inc()
        for result in results or ():
            self._ended.labels(result.reason.value, "" if result.error is None else result.error.code).inc()
            for origin, count in (
                ("prompt", result.prompt_tokens),
                ("sampled", result.sampled),
                ("forced", result.forced),
                ("backtracked", result.backtracked),
            ):
                self._tokens.labels(origin).inc(count)
            if result.first_token_seconds == result.first_token_seconds:
                self._first.observe(result.first_token_seconds)

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """Times the block."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._prepare.observe(time.perf_counter() - start)
