"""Routes for operators: health, readiness and metrics."""

from __future__ import annotations

import asyncio
import importlib.metadata
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from aicirt.contract.errors import AiciError

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from pyaici.server.service import Service


router = APIRouter(tags=["operations"])
#: least seconds between two requests to aicirt for its health
_HEALTH_SECONDS = 1.0
#: least seconds between two pages of metrics, which anybody may ask for: a page takes some milliseconds
_PAGE_SECONDS = 0.1
#: seconds between two looks at the event loop
_LOOK_SECONDS = 0.1


@router.get("/health")
async def health(request: Request) -> dict[str, str]:
    """Reports that the server runs."""
    return {"status": "ok"}


@router.get("/ready")
async def ready(request: Request, response: Response) -> dict[str, Any]:
    """Reports whether the server can take requests: whether the engine and aicirt are available.

    Answers with status 503 if not. The state of the operator's tools, in `tools`, does not count.
    """
    service: Service = request.app.state.service
    state = {"engine": service.engine.alive, "aicirt": service.controllers.connected}
    if not all(state.values()):
        response.status_code = 503
    status = "ready" if all(state.values()) else "not ready"
    known = {"status": status, **state, "model": service.model.name}
    tools: Callable[[], dict[str, Any]] | None = request.app.state.tools
    return known if tools is None else {**known, "tools": tools()}


@router.get("/openapi.json", include_in_schema=False)
async def description(request: Request) -> Response:
    """Returns the description of all routes, which anybody may ask for: a thread makes it once."""
    app = request.app
    if not hasattr(app.state, "description"):
        making = asyncio.to_thread(lambda: JSONResponse(app.openapi()).body)
        app.state.description = asyncio.create_task(making)
    return Response(await asyncio.shield(app.state.description), media_type="application/json")


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """Returns metrics in Prometheus' text format."""
    watcher: Watcher = request.app.state.watcher
    return Response(await watcher.text(), media_type=CONTENT_TYPE_LATEST)


@asynccontextmanager
async def watch(service: Service) -> AsyncIterator[Watcher]:
    """Adds figures of the service's engine, of aicirt and of the event loop to the service's metrics."""
    watcher = Watcher(service)
    service.metrics.add(watcher)
    looking = asyncio.create_task(_look(service))
    try:
        yield watcher
    finally:
        looking.cancel()


async def _look(service: Service) -> None:
    """Measures how long the event loop keeps a task waiting that is due."""
    while True:
        due = time.monotonic() + _LOOK_SECONDS
        await asyncio.sleep(_LOOK_SECONDS)
        service.metrics.loop_stall.observe(max(0.0, time.monotonic() - due))


class Watcher(Collector):
    """Collects figures that are counted elsewhere: by the engine and by aicirt."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._health: dict[str, Any] = {}
        self._asked = -_HEALTH_SECONDS
        #: the page that is made next, for all requests that have come before it is begun
        self._made = -_PAGE_SECONDS
        self._next: asyncio.Task[bytes] | None = None
        self._making = asyncio.Lock()

    async def text(self) -> bytes:
        """Returns all metrics in Prometheus' text format: one page for all requests of a moment."""
        if self._next is None:
            self._next = asyncio.create_task(self._make())
        return await asyncio.shield(self._next)

    async def _make(self) -> bytes:
        async with self._making:
            await asyncio.sleep(max(0.0, self._made + _PAGE_SECONDS - time.monotonic()))
            self._next = None
            await self._refresh()
            self._made = time.monotonic()
            return await asyncio.to_thread(self._service.metrics.text)

    async def _refresh(self) -> None:
        """Requests the health of aicirt, unless it was requested a moment ago."""
        if time.monotonic() - self._asked < _HEALTH_SECONDS:
            return
        self._asked = time.monotonic()
        try:
            self._health = await self._service.controllers.health()
        except (AiciError, asyncio.CancelledError):
            self._health = {}

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics; prometheus_client calls it."""
        yield from self._engine()
        if self._health:
            yield from self._runtime(self._health)

    def _engine(self) -> Iterator[Metric]:
        model = self._service.model
        build = GaugeMetricFamily("aici_build_info", "what is served", labels=("version", "model", "engine"))
        version = importlib.metadata.version("pyaici")
        build.add_metric([version, model.name, type(model.engine).__name__], 1)
        yield build
        waiting = len(self._service.waiting_room)
        yield GaugeMetricFamily("aici_waiting_requests", "requests that wait for their turn", waiting)
        stats = model.engine.stats
        for name, text, value in (
            ("aici_engine_steps", "steps of the engine", stats.steps),
            ("aici_engine_sampled_tokens", "tokens that were sampled", stats.sampled),
            ("aici_engine_forced_tokens", "tokens that controllers appended", stats.forced),
            ("aici_engine_backtracked_tokens", "tokens that controllers removed", stats.backtracked),
            ("aici_engine_forks", "forks of sequences", stats.forks),
            ("aici_engine_read_again_tokens", "tokens read again after a suspension", stats.read_again),
        ):
            yield CounterMetricFamily(name, text, value)
        reused = getattr(stats, "reused", None)
        if reused is not None:  # only for an engine that has its own cache
            text = "tokens of prompts that the cache had"
            yield CounterMetricFamily("aici_engine_reused_tokens", text, reused)
        if use := model.engine.cache_use():
            text = "tokens of the key-value cache: held, reserved for requests, and their limit"
            cache = GaugeMetricFamily("aici_cache_tokens", text, labels=("kind",))
            for kind, tokens in use.items():
                cache.add_metric([kind], tokens)
            yield cache
        seconds = getattr(stats, "seconds", None)
        if seconds is not None:  # only for an engine that times its phases
            phases = CounterMetricFamily(
                "aici_engine_phase_seconds",
                "time of the engine by phase: pre is the critical path of controllers, mid the time that the "
                "forward pass did not hide, mask the application of masks",
                labels=("phase",),
            )
            for phase, value in seconds.items():
                phases.add_metric([phase.name.lower()], value)
            yield phases

    def _runtime(self, health: dict[str, Any]) -> Iterator[Metric]:
        workers = health["workers"]
        live = sum(worker.get("sequences", 0) for worker in workers)
        yield GaugeMetricFamily("aici_live_sequences", "sequences with a controller", live)
        yield GaugeMetricFamily("aici_modules", "stored controllers", health["modules"])
        templates = health["templates"]
        for name, text, kind in (
            ("aici_templates", "controllers that are kept ready with an argument", "kept"),
            ("aici_warm_templates", "of these, the ones that have prepared masks", "warm"),
        ):
            yield GaugeMetricFamily(name, text, templates[kind])
        for name, text, kind in (
            ("aici_template_builds", "controllers that have read an argument", "builds"),
            ("aici_template_hits", "requests whose argument had been read before", "hits"),
        ):
            yield CounterMetricFamily(name, text, templates[kind])
        yield GaugeMetricFamily(
            "aici_snapshot_bytes",
            "memory of snapshots",
            sum(worker.get("snapshot_bytes", 0) for worker in workers),
        )
        yield GaugeMetricFamily(
            "aici_controller_bytes",
            "memory of running controllers",
            sum(worker.get("memory", {}).get("bytes", 0) for worker in workers),
        )
        memory = [worker["memory"] for worker in workers if "memory" in worker]
        for name, text, values in (
            ("aici_controller_bytes_limit", "most memory of running controllers",
             [sum(one["limit"] for one in memory)]),
            ("aici_owner_bytes", "memory of the running controllers in a worker of the user who has the most",
             [one["owner_bytes"] for one in memory]),
            ("aici_owner_bytes_limit", "most memory of the running controllers in a worker of one user",
             [one["owner_limit"] for one in memory]),
        ):  # fmt: skip
            yield GaugeMetricFamily(name, text, max(values, default=0))
        yield CounterMetricFamily("aici_worker_restarts", "workers that were replaced", health["restarts"])
        busy = GaugeMetricFamily(
            "aici_worker_busy", "fraction of time that a worker is busy", labels=("worker",)
        )
        for worker in workers:
            busy.add_metric([str(worker["index"])], worker.get("busy", 0.0))
        yield busy
        events = CounterMetricFamily(
            "aici_controller_events",
            "late steps, forks, and errors of controllers by code",
            labels=("event",),
        )
        counts = Counter({"late": 0, "forks": 0, **health["counters"]})
        for worker in workers:  # these have counters of their own
            counts.update(worker.get("counters", {}))
        for name, count in sorted(counts.items()):
            events.add_metric([name], count)
        yield events
