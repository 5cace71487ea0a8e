"""Routes of character-prefix completion: complete or streamed suggestions."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from sse_starlette import ServerSentEvent

from pyaici.cpc import DeadPrefixError
from pyaici.server.apis.cpc.completion import Completion, Covers
from pyaici.server.apis.cpc.ollama import OllamaCompletion
from pyaici.server.apis.cpc.requests import Backend, CpcRequest, CpcResponse
from pyaici.server.apis.json_bodies import JsonRoute
from pyaici.server.http.access import Runner
from pyaici.server.http.errors import ApiError, bad_request, check_text
from pyaici.server.http.sse import STREAM_OR_JSON, event, stream_events, while_connected
from pyaici.server.http.users import User
from pyaici.server.service import Service

router = APIRouter(tags=["character-prefix completion"], route_class=JsonRoute)
#: error for a prefix that no text begins with
_DEAD = "A(i)=∅"
Chosen = Annotated[
    Backend | None, Query(description="backend; overrides the body's mode and the server's setting")
]


@router.post("/cpc")
async def complete(request: Request, body: CpcRequest, user: Runner, backend: Chosen = None) -> CpcResponse:
    """Completes a line whose first characters have been typed; docs/cpc.md describes the samplers."""
    return await while_connected(request, _whole(_suggestion(request, body, user, backend)))


@router.post("/cpc_stream", response_model=None, responses=STREAM_OR_JSON)
async def complete_stream(
    request: Request, body: CpcRequest, user: Runner, backend: Chosen = None
) -> Response:
    """Streams a completion as server-sent events.

    The events are meta, ttfb, chunk for each piece of text, and done.
    """
    service: Service = request.app.state.service
    return await stream_events(request, _events(_suggestion(request, body, user, backend)), service.settings)


def _suggestion(request: Request, body: CpcRequest, user: User, backend: Backend | None) -> _Suggestion:
    service: Service = request.app.state.service
    check_text(body.prefix, "prefix")
    check_text(body.context, "context")
    settings = service.settings
    if body.max_evals > settings.cpc_max_evals:
        if "max_evals" in body.model_fields_set:
            raise bad_request(
                f"max_evals is {body.max_evals}; this server allows {settings.cpc_max_evals}", "max_evals"
            )
        body = body.model_copy(update={"max_evals": settings.cpc_max_evals})
    if (backend or body.mode or settings.cpc_backend) == "ollama":
        if settings.ollama is None:
            raise bad_request(
                "this server has no backend ollama: choose none, or start the server with --ollama-url URL",
                "backend" if backend else "mode",
            )
        return _Suggestion(OllamaCompletion(body, settings.ollama, settings.ollama_model, body.seed))
    covers: Covers = request.app.state.covers
    return _Suggestion(Completion(service, covers, body, user))


class _Suggestion:
    """A completion, and the time that it takes."""

    def __init__(self, completion: Completion | OllamaCompletion) -> None:
        self.completion = completion
        self._start = time.perf_counter()

    @property
    def backend(self) -> Backend:
        return "pcas" if isinstance(self.completion, Completion) else "ollama"

    @property
    def milliseconds(self) -> float:
        return round(1000 * (time.perf_counter() - self._start), 3)

    @property
    def debug(self) -> list[str]:
        if isinstance(self.completion, OllamaCompletion):
            return ["the prompt asks the model for the prefix"]
        return self.completion.debug

    @property
    def calls_prefix(self) -> int:
        if isinstance(self.completion, OllamaCompletion):
            return 1
        return 0 if self.completion.certificate is None else self.completion.certificate.calls_prefix


async def _whole(suggestion: _Suggestion) -> CpcResponse:
    text, dead = "", False
    try:
        async with contextlib.aclosing(suggestion.completion.chunks()) as chunks:
            async for chunk in chunks:
                text += chunk
    except DeadPrefixError:
        dead = True
    answer: dict[str, Any] = {
        "suggestion": text,
        "backend": suggestion.backend,
        "ms_total": suggestion.milliseconds,
    }
    answer |= {
        "calls_prefix": suggestion.calls_prefix,
        "debug": [*suggestion.debug, *([_DEAD] if dead else [])],
    }
    completion = suggestion.completion
    if isinstance(completion, Completion):
        answer |= {
            "certificate": completion.certificate_fields(),
            "tokens_emitted": completion.tokens_emitted,
        }
    else:
        answer["adhered"] = completion.adhered
    return CpcResponse(**answer)


async def _events(suggestion: _Suggestion) -> AsyncGenerator[ServerSentEvent, None]:
    """Yields the events. Raises ApiError before the first piece of text, when it can still be a status."""
    done: dict[str, Any] = {}
    async with contextlib.aclosing(suggestion.completion.chunks()) as chunks:
        try:
            first = await anext(chunks, None)
        except DeadPrefixError:
            first, done["error"] = None, _DEAD
        yield event({"backend": suggestion.backend}, "meta")
        if first is not None:
            yield event({"ms": round(suggestion.milliseconds)}, "ttfb")
            yield event({"text": first}, "chunk")
            try:
                async for chunk in chunks:
                    yield event({"text": chunk}, "chunk")
            except ApiError as error:
                yield event({"status": error.status, **error.body()["error"]}, "error")
                done["error"] = error.message
    completion = suggestion.completion
    if isinstance(completion, Completion):
        done |= {"calls_prefix": suggestion.calls_prefix, "tokens_emitted": completion.tokens_emitted}
        certificate = completion.certificate_fields()
        if certificate is not None:
            done["certificate"] = certificate.model_dump()
    else:
        done |= {"bytes": completion.nbytes, "adhered": completion.adhered}
    yield event({**done, "ms_total": round(suggestion.milliseconds)}, "done")
