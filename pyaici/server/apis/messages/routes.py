"""Routes of the messages API of ai00 and Anthropic: `POST /v1/messages` and `/v1/messages/count_tokens`."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from functools import partial
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel
from sse_starlette import ServerSentEvent

from pyaici.engines.engine import FinishReason, Sampling
from pyaici.server.answers.plan import THINK
from pyaici.server.answers.reader import open_reader
from pyaici.server.answers.thinking import (
    ThinkingLimit,
    limited_deltas,
    opens_thinking,
    switches,
    takes_effort,
)
from pyaici.server.apis.answers import ignored_header, respond
from pyaici.server.apis.json_bodies import parse_body, parse_json_body
from pyaici.server.apis.messages.plan import Plan, PromptFormat, level_of, plan
from pyaici.server.apis.messages.prompt import ai00_prompt, chat_prompt
from pyaici.server.apis.messages.requests import (
    STATUS,
    Kind,
    MessagesError,
    MessagesRequest,
    ThinkingEnabled,
    parse_request,
)
from pyaici.server.apis.messages.responses import Answer, ServerEvent, Usage
from pyaici.server.http.access import Runner
from pyaici.server.http.errors import ApiError, bad_request
from pyaici.server.http.handlers import is_declared_as_json, wrong_content_type
from pyaici.server.http.sse import STREAM_OR_JSON, event, while_connected
from pyaici.server.http.users import User
from pyaici.server.service import ControllerCall, Job, Service

PATH = "/api/v1/messages"
#: for a count the limits on an answer do not matter
_NO_LIMIT = 1 << 40
_EFFORT = "output_config.effort"
router = APIRouter(tags=["messages"])
#: place of the request's models in the OpenAPI document: models of other APIs may have the same names
_PLACE = "#/paths/~1api~1v1~1messages/post/requestBody/content/application~1json/schema/$defs/{model}"


_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": MessagesRequest.model_json_schema(ref_template=_PLACE)}},
    }
}


class TokenCount(BaseModel):
    """The number of tokens of a prompt."""

    input_tokens: int


@router.post("/api/v1/messages/count_tokens", openapi_extra=_BODY)
@router.post("/v1/messages/count_tokens", openapi_extra=_BODY)
async def count_tokens(request: Request, response: Response, user: Runner) -> TokenCount:
    """Returns how many tokens the prompt of a request to `/v1/messages` has."""
    service: Service = request.app.state.service
    if not is_declared_as_json(request):
        raise wrong_content_type(request)
    body = await parse_body(request, await request.body(), partial(_parse, for_count=True))
    service.model.check_name(body.model)
    tokens = await while_connected(request, service.reading.read(user, partial(_prompt, service, body)))
    response.headers.update(ignored_header(body.ignored))
    return TokenCount(input_tokens=len(tokens))


@router.post(PATH, response_model=None, responses=STREAM_OR_JSON, openapi_extra=_BODY)
@router.post("/v1/messages", response_model=None, responses=STREAM_OR_JSON, openapi_extra=_BODY)
async def messages(request: Request, response: Response, user: Runner) -> Response:
    """Answers a conversation, as in the APIs of ai00 and Anthropic; docs/messages.md describes it."""
    service: Service = request.app.state.service
    if not is_declared_as_json(request):
        raise wrong_content_type(request)
    body = await parse_body(request, await request.body(), _parse)
    service.model.check_name(body.model)
    if body.bnf_validation is None and level_of(body) == "structural":
        body = body.model_copy(update={"bnf_validation": service.settings.messages_validation})
    turn = await while_connected(request, service.reading.read(user, partial(_read, service, body, user)))
    return await respond(request, response, body, turn, stream=body.stream)


def _parse(data: bytes, *, for_count: bool = False) -> MessagesRequest:
    try:
        body = parse_json_body(data)
    except (ValueError, RecursionError) as error:
        raise bad_request(f"the body is not JSON: {error}") from None
    if for_count and isinstance(body, dict):
        body["max_tokens"] = _NO_LIMIT
    try:
        with _as_api_errors():
            return parse_request(body)
    except RecursionError:
        raise bad_request("the body is nested too deeply") from None


def _read(service: Service, body: MessagesRequest, user: User) -> _Turn:
    tokens, prompt_format = _prompt(service, body), _prompt_format(service)
    inside = opens_thinking(service.model, tokens)
    budget = body.thinking.budget_tokens if isinstance(body.thinking, ThinkingEnabled) else None
    if not body.thinks and inside:
        budget = 0  # the template has begun thinking, which the request did not ask for
    limit = None
    with _as_api_errors():
        planned = plan(body, prompt_format=prompt_format, inside=inside)
        if budget is not None:
            rest = plan(body, prompt_format=prompt_format, inside=False, thought=True)
            limit = ThinkingLimit(budget, _job(body, user, tokens, rest))
    return _Turn(service, planned, _job(body, user, tokens, planned), limit)


def _prompt(service: Service, body: MessagesRequest) -> list[int]:
    """Returns the tokens of the prompt. Raises ApiError."""
    model, effort = service.model, body.output_config.effort
    if _prompt_format(service) == "ai00":
        if effort is not None:
            raise bad_request("output_config.effort needs a model with a chat template", _EFFORT)
        with _as_api_errors():
            return model.encode(ai00_prompt(body))
    arguments = switches(model, body.thinks)
    if effort is not None:
        if not takes_effort(model):
            raise bad_request("the model's chat template has no reasoning_effort", _EFFORT)
        arguments["reasoning_effort"] = effort
    messages = chat_prompt(body, reasons=THINK in model.chat_template)
    return model.encode_chat(messages, template_arguments=arguments)


def _job(body: MessagesRequest, user: User, tokens: list[int], planned: Plan) -> Job:
    call = None
    if planned.argument is not None:
        call = ControllerCall("kbnf", planned.argument, "bnf_schema", "bnf_schema")
    sampling = Sampling(body.temperature, body.top_p or 1e-6, body.top_k)
    return Job(user, tokens, call, sampling, body.max_tokens)


def _prompt_format(service: Service) -> PromptFormat:
    """Returns the format of the settings; by default the model's own chat template, if it has one."""
    chosen = service.settings.messages_prompt
    if chosen != "auto":
        return chosen
    return "template" if service.model.chat_template else "ai00"


@contextlib.contextmanager
def _as_api_errors() -> Iterator[None]:
    """Turns a MessagesError in the block into an ApiError."""
    try:
        yield
    except MessagesError as error:
        raise ApiError(error.status, error.message, kind=error.kind, param=error.param) from None


class _Turn:
    """A request: the next turn of its conversation."""

    def __init__(self, service: Service, planned: Plan, job: Job, limit: ThinkingLimit | None) -> None:
        self._service, self._plan, self._job, self._limit = service, planned, job, limit
        self.streams = planned.request.stream
        self._answer = Answer(planned, model=planned.request.model)

    async def _steps(self) -> AsyncIterator[list[ServerEvent]]:
        """Yields the events of the answer as they come. Raises ApiError before the first of them."""
        answer, prompt_tokens, tokens = self._answer, len(self._job.prompt), 0
        reader = open_reader(self._plan.answer)
        begun = False
        try:
            deltas = limited_deltas(self._service, self._job, self._limit, reader)
            async with contextlib.aclosing(deltas):
                async for delta in deltas:
                    if not begun:
                        begun = True
                        yield answer.start_message(prompt_tokens)
                    tokens += delta.grown
                    # nothing is backtrack: the only controller here is a grammar, which never backtracks
                    yield answer.add(delta.events)
                    if delta.finish is not None:
                        reason = FinishReason.LENGTH if delta.finish == "length" else FinishReason.STOP
                        yield answer.finish(reason, Usage(prompt_tokens, tokens))
                        return
        except ApiError as error:
            problem = self._problem(error)
            if not begun:
                raise problem from None
            kind: Kind = next((known for known in STATUS if str(known) == problem.kind), "api_error")
            yield answer.add(reader.end())
            yield answer.fail(MessagesError(kind, problem.message, problem.param))

    def _problem(self, error: ApiError) -> ApiError:
        """Rewrites an error about the grammar, which may be one that was built from the request's tools."""
        if error.code == "argument" and error.param == "bnf_schema":
            refused = self._plan.refused(error.message)
            return ApiError(refused.status, refused.message, kind=refused.kind, param=refused.param)
        return error

    async def events(self) -> AsyncGenerator[ServerSentEvent, None]:
        """Yields the events of a stream."""
        async for step in self._steps():
            for data in step:
                yield event(data, str(data["type"]))

    async def whole(self) -> dict[str, Any]:
        """Returns the message when it is complete. Raises ApiError."""
        async for _ in self._steps():
            pass
        with _as_api_errors():
            message = self._answer.message()
        return message
