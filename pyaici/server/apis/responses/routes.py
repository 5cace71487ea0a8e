"""Routes of the Responses API: `POST /v1/responses`, and stored responses by their ids."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel
from sse_starlette import ServerSentEvent

from pyaici.server.answers.reader import open_reader
from pyaici.server.apis.answers import in_pieces, respond
from pyaici.server.apis.json_bodies import MAX_CONTAINERS, JsonRoute, count_containers
from pyaici.server.apis.mcp import McpTool, offered_calls
from pyaici.server.apis.openai.chat_plan import ChatPlan, plan_chat
from pyaici.server.apis.openai.logprobs import chat_entries
from pyaici.server.apis.responses.output import Output, Report, new_id
from pyaici.server.apis.responses.requests import Item, ResponsesRequest, in_own_terms
from pyaici.server.apis.responses.store import ResponseStore, StoredResponse
from pyaici.server.http.access import Runner
from pyaici.server.http.errors import ApiError, bad_request, not_found
from pyaici.server.http.sse import STREAM_OR_JSON, event, to_json, while_connected
from pyaici.server.service import Service

if TYPE_CHECKING:
    from pyaici.server.http.users import User

PATH = "/v1/responses"
#: Most log-probabilities of a response, with those of the most likely tokens. Each of the last four events of
#: a stream has all of them, with 200 bytes each.
MAX_LISTED = 1 << 14
Name = Annotated[str, Path(alias="response_id", min_length=1, max_length=256)]
router = APIRouter(tags=["responses"], route_class=JsonRoute)


class Deleted(BaseModel):
    """Confirms that the response was deleted."""

    id: str
    object: str = "response"
    deleted: bool = True


@dataclass(frozen=True, slots=True)
class _Plan:
    """The plan for a response. `items`: the whole conversation before its output, as JSON.

    None: it has more objects than a body may have, and is not stored: a few bytes would have it parsed again.
    `lists`: the tools of MCP servers (server, descriptions) that the conversation does not list yet.
    """

    chat: ChatPlan
    items: bytes | None
    lists: Sequence[tuple[str, list[dict[str, Any]]]] = ()


@router.post(PATH, response_model=None, responses=STREAM_OR_JSON)
async def create(request: Request, response: Response, body: ResponsesRequest, user: Runner) -> Response:
    """Answers with items, as Open Responses defines it; docs/responses.md describes it."""
    service: Service = request.app.state.service
    store: ResponseStore = request.app.state.responses
    service.model.check_name(body.model)
    previous = None
    if body.previous_response_id is not None:
        previous = store.get(user.owner, body.previous_response_id, "previous_response_id")
    named = store.having(user.owner, body.references)
    plan = partial(_plan, service, body, previous, named, user)
    read = service.reading.read(user, plan)
    answer = _Response(service, store, body, await while_connected(request, read))
    return await respond(request, response, body, answer, stream=body.stream)


@router.get(f"{PATH}/{{response_id}}", response_model=None)
async def retrieve(request: Request, name: Name, user: Runner, stream: bool = False) -> Response:
    """Returns a stored response of the user, whole."""
    if stream:
        raise bad_request("a stored response is not streamed: leave out stream", "stream")
    store: ResponseStore = request.app.state.responses
    return Response(store.get(user.owner, name).response, media_type="application/json")


@router.delete(f"{PATH}/{{response_id}}")
async def delete(request: Request, name: Name, user: Runner) -> Deleted:
    """Deletes a stored response of the user. Responses that continue it keep its items."""
    store: ResponseStore = request.app.state.responses
    store.delete(user.owner, name)
    return Deleted(id=name)


def _plan(
    service: Service,
    body: ResponsesRequest,
    previous: StoredResponse | None,
    named: Sequence[StoredResponse],
    user: User,
) -> _Plan:
    """Returns the plan for a response that continues a stored one, or none. Raises ApiError.

    `named`: the responses with the items that the input names by their ids. Together they have no more
    objects than a body may have, since some bytes of the request have them parsed.
    """
    items: list[Item] = []
    if previous is not None:
        items += _read_items([*json.loads(previous.items), *json.loads(previous.output)])
    if sum(count_containers(kept.output) for kept in named) > MAX_CONTAINERS:
        words = f"the input names items of responses with more than {MAX_CONTAINERS} objects and arrays"
        raise bad_request(f"{words}: send some of the items themselves", "input")
    known = {item.id: item for kept in named for item in _read_items(json.loads(kept.output))}
    for place, item in enumerate(body.input):
        if item.type == "item_reference" and item.id not in known:
            words = f"there is no stored item {item.id!r:.66}: send the item itself"
            raise not_found(words, f"input.{place}.id")
        items.append(known[item.id] if item.type == "item_reference" else item)
    try:
        chat = plan_chat(service.model, body.chat(items), user, service.mcp_servers)
    except ApiError as error:
        raise in_own_terms(error) from None
    written = to_json([item.model_dump(exclude_none=True) for item in items]).encode()
    few = count_containers(written) <= MAX_CONTAINERS
    listed = {item.server_label for item in items if item.type == "mcp_list_tools"}
    lists = [
        (tool.server_label, offered_calls(tool, service.mcp_servers, f"tools.{number}"))
        for number, tool in enumerate(body.tools or ())
        if isinstance(tool, McpTool) and tool.server_label not in listed
    ]
    return _Plan(chat, written if few else None, lists)


def _read_items(written: Iterable[Any]) -> list[Item]:
    return [Item.model_validate(item) for item in written]


class _Response:
    """A response while it is generated."""

    def __init__(self, service: Service, store: ResponseStore, body: ResponsesRequest, plan: _Plan) -> None:
        self._service, self._store, self._body, self._plan = service, store, body, plan
        logprobs = partial(chat_entries, service.model) if body.lists_logprobs else None
        self._reader = open_reader(plan.chat.answer)
        self._output = Output(self._reader, logprobs)
        self._id, self._created = new_id("resp"), int(time.time())
        #: the conversation before the output, which is stored with it; None: nothing is stored
        self._items = plan.items if body.store is not False and store.enabled else None
        #: what ended the response after its first event
        self._failure: ApiError | None = None

    def _wire(self, status: str) -> dict[str, Any]:
        """Returns the response in its present state."""
        body, sampling = self._body, self._plan.chat.job.sampling
        ended = status != "in_progress"
        error, text, reasoning = self._failure, body.text, body.reasoning
        choice = body.tool_choice or "auto"
        cut = {"reason": "max_output_tokens"} if status == "incomplete" else None
        wire = {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "completed_at": int(time.time()) if status == "completed" else None,
            "status": status,
            "incomplete_details": cut,
            "error": error and {"code": error.code or error.kind, "message": error.message},
            "model": self._service.model.name,
            "previous_response_id": body.previous_response_id,
            "instructions": body.instructions,
            "output": self._output.wire() if ended else [],
            "tools": [tool.echo() for tool in body.tools or ()],
            "tool_choice": choice if isinstance(choice, str) else choice.model_dump(),
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "text": {"format": text.format.echo() if text and text.format else {"type": "text"}},
            "reasoning": {"effort": reasoning.effort if reasoning else None, "summary": None},
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "presence_penalty": sampling.presence_penalty,
            "frequency_penalty": sampling.frequency_penalty,
            "top_logprobs": body.top_logprobs or 0,
            "max_output_tokens": body.max_output_tokens,
            "max_tool_calls": body.max_tool_calls,
            "truncation": "disabled",
            "service_tier": "default",
            "store": self._items is not None,
            "background": False,
            "metadata": body.metadata or {},
            "safety_identifier": body.safety_identifier,
            "prompt_cache_key": body.prompt_cache_key,
            "usage": self._usage() if ended else None,
        }
        return {**wire, "log": self._output.logs} if self._output.logs else wire

    def _usage(self) -> dict[str, Any]:
        output = self._output
        prompt = len(self._plan.chat.job.prompt) + output.read
        cached = {"cached_tokens": min(prompt, output.cached), "cache_write_tokens": 0}
        return {
            "input_tokens": prompt,
            "input_tokens_details": cached,
            "output_tokens": output.tokens,
            "output_tokens_details": {"reasoning_tokens": output.reasoning_tokens},
            "total_tokens": prompt + output.tokens,
        }

    async def _reports(self) -> AsyncGenerator[Report, None]:
        """Yields the events of the response. Raises ApiError before the first of them."""
        output, chat = self._output, self._plan.chat
        begun = False
        try:
            deltas = chat.deltas(self._service, chat.job, self._reader)
            async with contextlib.aclosing(deltas):
                async for delta in deltas:
                    if not begun:
                        begun = True
                        for kind in ("response.created", "response.in_progress"):
                            yield {"type": kind, "response": self._wire("in_progress")}
                        for server, tools in self._plan.lists:
                            for report in output.list_tools(server, tools):
                                yield report
                    for report in output.add_delta(delta):
                        yield report
                    if output.listed > MAX_LISTED:
                        raise _too_many_logprobs()
                    if delta.finish is not None:
                        status = "incomplete" if delta.finish == "length" else "completed"
                        for report in output.end(cut=status == "incomplete"):
                            yield report
                        yield {"type": f"response.{status}", "response": await self._stored(status)}
                        return
        except ApiError as error:
            problem = in_own_terms(error)
            if not begun:
                raise problem from None
            for report in output.stop():
                yield report
            self._failure = problem
            yield {"type": "error", **problem.responses_body()}
            yield {"type": "response.failed", "response": self._wire("failed")}

    async def _stored(self, status: str) -> dict[str, Any]:
        """Returns the response in its last state, after storing it if that is wanted."""
        wire = self._wire(status)
        if self._items is not None:
            ids = frozenset(item["id"] for item in wire["output"])
            whole, output = [(await in_pieces(part)).encode() for part in (wire, wire["output"])]
            written = StoredResponse(whole, self._items, output, ids)
            wire["store"] = self._store.put(self._plan.chat.job.user.owner, self._id, written)
        return wire

    async def events(self) -> AsyncGenerator[ServerSentEvent, None]:
        """Yields the events of a stream."""
        number = 0
        reports = self._reports()
        async with contextlib.aclosing(reports):
            async for report in reports:
                kind = report["type"]
                numbered = {"type": kind, "sequence_number": number, **report}
                # some repeat the instructions, the tools, or all log-probabilities, which may be long
                yield event(await in_pieces(numbered), kind)
                number += 1
        yield event("[DONE]")

    async def whole(self) -> dict[str, Any]:
        """Returns the response when it is complete. Raises ApiError."""
        response: dict[str, Any] = {}
        async for report in self._reports():
            response = report.get("response", response)
        if self._failure is not None:
            raise self._failure
        return response


def _too_many_logprobs() -> ApiError:
    words = f"the response would list more than {MAX_LISTED} log-probabilities: ask for fewer, or for a chat"
    return bad_request(words, "top_logprobs")
