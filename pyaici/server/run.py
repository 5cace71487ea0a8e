"""`POST /v1/run`: a model writes under a controller's control, and everything that happens is told."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from pyaici.server.access import Runner
from pyaici.server.errors import bad_request
from pyaici.server.fields import (
    ControllerName,
    MaxTokens,
    Seed,
    Temperature,
    TokenIds,
    TopK,
    TopLogprobs,
    TopP,
    argument_text,
    sampling,
)
from pyaici.server.run_story import RunStory
from pyaici.server.service import ControllerCall, Job, Service
from pyaici.server.sse import STREAM_OR_JSON, event, stream_events, while_connected

if TYPE_CHECKING:
    from sse_starlette import ServerSentEvent

    from pyaici.server.users import User

router = APIRouter(tags=["run"])


class ChatMessage(BaseModel):
    """One turn of a chat."""

    model_config = ConfigDict(extra="forbid", strict=True)

    role: Annotated[str, Field(min_length=1, max_length=64)]
    content: str


class RunRequest(BaseModel):
    """A prompt, and who controls what the model makes of it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    controller: ControllerName = Field(
        "none", description="a bundled controller, an id or a tag; none = no control"
    )
    controller_arg: Any = Field(None, description="its argument: a text, or JSON")
    prompt: str | TokenIds | None = Field(None, description="a text as it is, or token ids")
    messages: list[ChatMessage] | None = Field(None, max_length=4096, description="instead: a chat")
    temperature: Temperature = 0.0
    top_p: TopP = 1.0
    top_k: TopK = 0
    seed: Seed | None = None
    max_tokens: MaxTokens | None = None
    logprobs: bool = Field(False, description="tell the log-probability of every sampled token")
    top_logprobs: TopLogprobs = 0
    details: bool = Field(False, description="tell how many tokens were allowed where one was sampled")
    stream: bool = Field(True, description="false: one answer when everything has ended")


@router.post("/v1/run", response_model=None, responses=STREAM_OR_JSON)
async def run(request: Request, body: RunRequest, user: Runner) -> Response | dict[str, Any]:
    """Runs a controller. The answer is a stream of server-sent events, which docs/server.md describes."""
    service: Service = request.app.state.service
    job = _job(service, body, user)
    if body.stream:
        return await stream_events(request, _events(service, job), service.settings)
    return await while_connected(request, _whole(service, job))


def _job(service: Service, body: RunRequest, user: User) -> Job:
    if (body.prompt is None) == (body.messages is None):
        raise bad_request("give either a prompt or messages", "prompt")
    if body.messages is not None:
        if not body.messages:
            raise bad_request("there must be a message", "messages")
        prompt = service.model.encode_chat([message.model_dump() for message in body.messages])
    else:
        assert body.prompt is not None
        prompt = service.model.encode(body.prompt)
    call = None
    if body.controller != "none":
        call = ControllerCall(body.controller, argument_text(body.controller_arg))
    elif body.controller_arg is not None:
        raise bad_request(
            "controller_arg is a controller's argument, but there is no controller", "controller_arg"
        )
    return Job(
        user,
        prompt,
        call,
        sampling(body.temperature, body.top_p, body.top_k, body.seed),
        body.max_tokens,
        logprobs=body.logprobs or body.top_logprobs > 0,
        top_logprobs=body.top_logprobs,
        count_allowed=body.details,
    )


async def _events(service: Service, job: Job) -> AsyncGenerator[ServerSentEvent, None]:
    story = RunStory(service.model)
    async with service.run(job) as stream:
        yield event(_header(service, job))
        async for step in stream:
            yield event(story.tell(step))
        yield event(story.end(stream.results))
    yield event("[DONE]")


async def _whole(service: Service, job: Job) -> dict[str, Any]:
    story = RunStory(service.model)
    async with service.run(job) as stream:
        async for step in stream:
            story.tell(step)
        return {**_header(service, job), **story.end(stream.results), "object": "run.result"}


def _header(service: Service, job: Job) -> dict[str, Any]:
    return {
        "object": "initial-run",
        "id": f"run-{uuid.uuid4().hex}",
        "created": int(time.time()),
        "model": service.model.name,
        "controller": job.controller.controller if job.controller else "none",
        "prompt_tokens": len(job.prompt),
        "vocab_size": service.model.vocabulary.vocab_size,
    }
