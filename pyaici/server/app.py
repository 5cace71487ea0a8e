"""Builds the web application: all routes and middleware."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware
from starlette.routing import Route

from pyaici.server.apis import controllers, operations, tokens
from pyaici.server.apis.cpc import routes as cpc
from pyaici.server.apis.cpc.completion import Covers
from pyaici.server.apis.messages import routes as messages
from pyaici.server.apis.ollama import routes as ollama
from pyaici.server.apis.openai import catalog, chat, completions
from pyaici.server.apis.responses import routes as responses
from pyaici.server.apis.responses.store import ResponseStore
from pyaici.server.apis.run import routes as run
from pyaici.server.http.access import Authentication, Gate, Origins
from pyaici.server.http.bodies import BodyLimit
from pyaici.server.http.handlers import add_handlers
from pyaici.server.http.middleware import Metrics, RequestIds
from pyaici.server.playground import routes as playground
from pyaici.server.service import Service

if TYPE_CHECKING:
    from pyaici.server.controller_store import ControllerStore
    from pyaici.server.models import ServedModel
    from pyaici.server.settings import ServerSettings
    from pyaici.tools.process import ToolsProcess

_DESCRIPTION = """\
Serves a language model. Controllers, which are small WebAssembly programs, steer its output token by token.
"""


def create_app(
    settings: ServerSettings,
    model: ServedModel,
    store: ControllerStore,
    on_failure: Callable[[], None] | None = None,
    tools: ToolsProcess | None = None,
) -> FastAPI:
    """Returns the application. The caller closes what it passes after the application has ended.

    `on_failure` is called, in some thread, when the engine cannot go on. `tools`: the
    operator's. Raises AiciError if the file of users is invalid.
    """
    metrics = Metrics()

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service = app.state.service = Service(settings, model, store, metrics, on_failure, tools)
        store.watch()
        covers = app.state.covers = Covers(service)
        try:
            async with operations.watch(service) as app.state.watcher:
                yield
        finally:
            covers.close()
            await asyncio.to_thread(service.close)

    app = FastAPI(
        title="AICI",
        summary="controllers as a service",
        description=_DESCRIPTION,
        version=importlib.metadata.version("pyaici"),
        lifespan=lifespan,
        # the pages of Swagger and ReDoc would load scripts from other sites
        docs_url=None,
        redoc_url=None,
        openapi_url=None,  # `operations.description` sends it
        # `RequestIds` traces requests, also with versions of FastAPI that cannot, and knows their end
        telemetry={"tracing": False, "logs": False},
        responses={
            "4XX": {"description": "the request is invalid or refused"},
            "5XX": {"description": "the server has failed or is busy"},
        },
    )
    app.state.settings, app.state.tools = settings, tools and tools.summary
    app.state.responses = ResponseStore(settings)
    add_handlers(app)
    openai = (completions, chat, catalog)
    parts = (operations, controllers, run, *openai, responses, tokens, messages, ollama, cpc, playground)
    for part in parts:
        app.include_router(part.router)
    app.state.routes = [route for part in parts for route in part.router.routes if isinstance(route, Route)]
    _add_middleware(app, settings, metrics)
    return app


def _add_middleware(app: FastAPI, settings: ServerSettings, metrics: Metrics) -> None:
    """Adds what each request passes through; the last one comes first."""
    app.add_middleware(BodyLimit, settings=settings, uploads=frozenset({controllers.UPLOAD_PATH}))
    app.add_middleware(Authentication, gate=Gate(settings))
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=["GET", "POST", "DELETE", "PUT"],
            allow_headers=["*"],
            expose_headers=["x-request-id"],
        )
    app.add_middleware(Origins, settings=settings)
    app.add_middleware(RequestIds, metrics=metrics)
