"""`POST /v1/run`: a model writes under a controller's control, and every event is reported."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import Field

from aicirt.settings import MAX_RUN_NAME
from pyaici.engines.engine import MAX_LOG_BYTES
from pyaici.server.apis.controllers import ARG_WITHOUT_CONTROLLER, ScriptBody, script_call
from pyaici.server.apis.fields import (
    MAX_MESSAGES,
    ChatMessage,
    Choices,
    ControllerName,
    MaxTokens,
    StrictBody,
    Temperature,
    TokenIds,
    TopLogprobs,
    argument_text,
    check_choices,
)
from pyaici.server.apis.json_bodies import JsonRoute
from pyaici.server.apis.openai.choices import copies, side_by_side
from pyaici.server.apis.run.report import RunReport
from pyaici.server.apis.sampling import SamplingFields, sampling
from pyaici.server.http.access import Runner
from pyaici.server.http.errors import ApiError, bad_request
from pyaici.server.http.sse import STREAM_OR_JSON, event, stream_events, while_connected
from pyaici.server.scheduling.streams import MAX_BACKLOG_BYTES, size
from pyaici.server.service import ControllerCall, Job, Service

if TYPE_CHECKING:
    from sse_starlette import ServerSentEvent

    from pyaici.engines.engine import Event, GenerationResult
    from pyaici.server.http.users import User

    _Step = tuple[list[Event], list[GenerationResult]]


router = APIRouter(tags=["run"], route_class=JsonRoute)


#: calls that a client may offer to answer
MAX_CALLS = 128


class CallDescription(StrictBody):
    """A call that the client answers."""

    name: Annotated[str, Field(min_length=1, max_length=128)]
    description: Annotated[str, Field(max_length=10_000)] = ""
    #: pydantic's own models have an attribute `schema`
    arguments_schema: dict[str, Any] | bool | None = Field(
        None, alias="schema", description="JSON schema of the arguments, for controllers"
    )


class CallFailure(StrictBody):
    """Why a call has failed."""

    code: Annotated[str, Field(min_length=1, max_length=128)] = "failed"
    message: Annotated[str, Field(max_length=10_000)]


class CallAnswer(StrictBody):
    """The answer to a call: a value, or an error."""

    value: Any = Field(None, description="any JSON")
    error: CallFailure | None = Field(None, description="instead of a value")


class Message(StrictBody):
    """A message to the controller of a run."""

    value: Any = Field(description="any JSON")


class RunRequest(StrictBody, SamplingFields):
    """A prompt, and the controller that steers what the model generates."""

    controller: ControllerName = Field(
        "none", description="name of a bundled controller, id, or tag; none = no controller"
    )
    controller_arg: Any = Field(None, description="argument of the controller: a text, or JSON")
    script: ScriptBody | None = Field(None, description="a script, instead of a controller")
    prompt: str | TokenIds | None = Field(None, description="a text that is used as it is, or token ids")
    messages: Annotated[list[ChatMessage], Field(max_length=MAX_MESSAGES, fail_fast=True)] | None = Field(
        None, description="a chat, instead of a prompt"
    )
    n: Choices = Field(1, description="number of sequences of this prompt")
    temperature: Temperature = 0.0
    max_tokens: MaxTokens | None = None
    logprobs: bool = Field(False, description="report the log-probability of every sampled token")
    top_logprobs: TopLogprobs = 0
    calls: Annotated[list[CallDescription], Field(max_length=MAX_CALLS)] | None = Field(
        None, description="calls that the client answers, by POST /v1/run/calls/{id}; needs stream"
    )
    name: Annotated[str, Field(max_length=MAX_RUN_NAME)] = Field(
        "",
        description="under which the user's other runs, and POST /v1/run/messages/{name}, send it messages",
    )
    details: bool = Field(False, description="report allowed tokens of masks, and times of steps")
    stream: bool = Field(True, description="false = return a single answer when everything has ended")


@router.post("/v1/run", response_model=None, responses=STREAM_OR_JSON)
async def run(request: Request, body: RunRequest, user: Runner) -> Response:
    """Runs a controller and reports every event.

    The answer is a stream of server-sent events, which docs/server.md describes, or one JSON object if
    `stream` is false.
    """
    service: Service = request.app.state.service
    if body.name and body.n > 1:
        raise bad_request("a name is that of one run: n must be 1", "name")
    check_choices(body.n, service.settings.max_streams)
    read = service.reading.read(user, partial(_job, service, body, user))
    jobs = copies(await while_connected(request, read), body.n)
    if body.stream:
        return await stream_events(request, _events(service, jobs), service.settings)
    return await while_connected(request, _whole(service, jobs))


@router.post("/v1/run/calls/{id}")
async def answer_call(request: Request, id: str, body: CallAnswer, user: Runner) -> dict[str, str]:
    """Answers a call of a running controller, which goes on with the value.

    The stream of the run has the call's id, name and arguments.
    """
    service: Service = request.app.state.service
    if body.error is not None and body.value is not None:
        raise bad_request("give either a value or an error", "error")
    error = None if body.error is None else (body.error.code, body.error.message)
    await service.calls.answer(id, user, body.value, error)
    return {"id": id, "object": "run.call"}


@router.post("/v1/run/messages/{name}")
async def send_message(request: Request, name: str, body: Message, user: Runner) -> dict[str, str]:
    """Sends a message to the user's run of this name, for its controller's next `receive`."""
    service: Service = request.app.state.service
    await service.calls.send_message(name, user, body.value)
    return {"name": name, "object": "run.message"}


def _job(service: Service, body: RunRequest, user: User) -> Job:
    if (body.prompt is None) == (body.messages is None):
        raise bad_request("give either a prompt or messages", "prompt")
    if body.messages is not None:
        if not body.messages:
            raise bad_request("messages must not be empty", "messages")
        prompt = service.model.encode_chat([message.model_dump() for message in body.messages])
    else:
        assert body.prompt is not None
        prompt = service.model.encode(body.prompt)
    return Job(
        user,
        prompt,
        _call(body),
        sampling(body, service.model),
        body.max_tokens,
        logprobs=body.logprobs or body.top_logprobs > 0,
        top_logprobs=body.top_logprobs,
        count_allowed=body.details,
        max_log_bytes=MAX_LOG_BYTES,
        calls=_calls(body),
        name=body.name,
    )


def _calls(body: RunRequest) -> list[dict[str, Any]] | None:
    if body.calls is None:
        return None
    if not body.stream:
        raise bad_request("calls need stream: its events have the calls to answer", "calls")
    return [
        {"name": call.name, "description": call.description, "schema": call.arguments_schema}
        for call in body.calls
    ]


def _call(body: RunRequest) -> ControllerCall | None:
    if body.script is not None:
        if body.controller != "none":
            raise bad_request("give either a controller or a script", "script")
        if body.controller_arg is not None:
            raise bad_request(ARG_WITHOUT_CONTROLLER, "controller_arg")
        return script_call(body.script)
    if body.controller != "none":
        return ControllerCall(body.controller, argument_text(body.controller_arg))
    if body.controller_arg is not None:
        raise bad_request(
            "controller_arg needs a controller: name one, or remove controller_arg", "controller_arg"
        )
    return None


async def _events(service: Service, jobs: Sequence[Job]) -> AsyncGenerator[ServerSentEvent, None]:
    """Yields the events of the stream.

    An ApiError before the first event is raised, as it can still be a status; a later one is an event.
    """
    report = RunReport(service.model)
    results: list[GenerationResult] = []
    begun = False
    try:
        async with contextlib.aclosing(_steps(service, jobs)) as steps:
            async for events, ended in steps:
                begun = True
                if events:
                    yield event(report.step(events))
                elif not ended:
                    yield event(_header(service, jobs[0]))
                results += ended
        yield event(await report.end(results))
    except ApiError as error:
        if not begun:
            raise
        yield event({"object": "error", **error.body()})
    else:
        yield event("[DONE]")


async def _whole(service: Service, jobs: Sequence[Job]) -> Response:
    report = RunReport(service.model)
    results: list[GenerationResult] = []
    calls: dict[str, dict[str, Any]] = {}
    async with contextlib.aclosing(_steps(service, jobs)) as steps:
        async for events, ended in steps:
            for call in report.step(events).get("calls", ()):
                calls.setdefault(call["id"], {}).update(call)
            results += ended
    header = {**_header(service, jobs[0]), "object": "run.result"}
    if calls:
        header["calls"] = list(calls.values())
    text = await report.end(results, header)
    return Response(text.encode(), media_type="application/json")


async def _steps(service: Service, jobs: Sequence[Job]) -> AsyncGenerator[_Step, None]:
    """Yields the steps of all sequences. The first step is empty: all have been accepted. Raises ApiError.

    If a sequence waits long for its turn, the first step comes earlier: as soon as the others have as many
    unread bytes as a backlog may have.
    """
    early: list[_Step] = []
    waiting = 0
    missing, begun = len(jobs), False
    sequences = side_by_side([_sequence(service, job) for job in jobs])
    async with contextlib.aclosing(sequences) as steps:
        async for _, step in steps:
            accepted = not any(step)
            missing -= accepted
            if begun:
                if not accepted:
                    yield step
                continue
            if not accepted:
                early.append(step)
                waiting += sum(map(size, step[0]))
            if not missing or waiting > MAX_BACKLOG_BYTES:
                begun = True
                yield [], []
                for events in early:
                    yield events
                early.clear()


async def _sequence(service: Service, job: Job) -> AsyncGenerator[_Step, None]:
    """Yields the steps of a sequence: an empty one when it is accepted, and last its results."""
    async with service.run(job) as stream:
        yield [], []
        async for events in stream:
            if events:
                yield events, []
        if stream.results:
            yield [], stream.results


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
