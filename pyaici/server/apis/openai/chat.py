"""Route `POST /v1/chat/completions`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from functools import partial
from typing import Any

from fastapi import APIRouter, Request, Response
from sse_starlette import ServerSentEvent

from pyaici.server.answers.calls import Call
from pyaici.server.answers.reader import Event, Reasoning, Text, open_reader
from pyaici.server.answers.text import TextDelta, TextToken
from pyaici.server.apis.answers import respond
from pyaici.server.apis.fields import check_choices
from pyaici.server.apis.json_bodies import JsonRoute
from pyaici.server.apis.openai.answer import ChatAnswer, MessageChange
from pyaici.server.apis.openai.chat_plan import ChatPlan, plan_chat
from pyaici.server.apis.openai.choices import Usage, answer_head, copies, ended, side_by_side
from pyaici.server.apis.openai.logprobs import chat_entries, chat_logprobs
from pyaici.server.apis.openai.requests import ChatRequest
from pyaici.server.http.access import Runner
from pyaici.server.http.sse import STREAM_OR_JSON, event, while_connected
from pyaici.server.service import Service

router = APIRouter(tags=["openai"], route_class=JsonRoute)


@router.post("/v1/chat/completions", response_model=None, responses=STREAM_OR_JSON)
async def chat(request: Request, response: Response, body: ChatRequest, user: Runner) -> Response:
    """Answers a chat, as in OpenAI's API; docs/openai.md describes the fields that constrain the answer."""
    service: Service = request.app.state.service
    service.model.check_name(body.model)
    check_choices(body.n or 1, service.settings.max_streams)
    read = service.reading.read(user, partial(plan_chat, service.model, body, user, service.mcp_servers))
    answer = _Chat(service, body, await while_connected(request, read))
    return await respond(request, response, body, answer, stream=body.stream)


class _Chat:
    """A request: `n` answers to its chat."""

    def __init__(self, service: Service, body: ChatRequest, plan: ChatPlan) -> None:
        self._service, self._body, self._plan = service, body, plan
        count = body.n or 1
        self._jobs = copies(plan.job, count)
        self._choices = [ChatAnswer(open_reader(plan.answer)) for _ in range(count)]
        self._usage = Usage([plan.job.prompt], count)
        kind = "chat.completion.chunk" if body.stream else "chat.completion"
        self._head = answer_head(service.model, "chatcmpl", kind)

    async def _answers(self) -> AsyncIterator[tuple[int, TextDelta, MessageChange]]:
        answers = [
            self._plan.deltas(self._service, job, choice.reader)
            for job, choice in zip(self._jobs, self._choices, strict=True)
        ]
        async for index, text_delta in side_by_side(answers):
            self._usage.count_delta(text_delta, index)
            yield index, text_delta, self._choices[index].add_delta(text_delta)

    def events(self) -> AsyncGenerator[ServerSentEvent, None]:
        """Returns the answers as a stream."""
        return ended(self._chunks(), self._usage, self._body.stream_options, self._head)

    async def _chunks(self) -> AsyncGenerator[ServerSentEvent, None]:
        begun: set[int] = set()
        async for index, text_delta, change in self._answers():
            if index not in begun:
                begun.add(index)
                yield self._chunk(index, {"role": "assistant", "content": ""})
            fields = self._fields(text_delta, change)
            deltas = self._deltas(index, change.events) or ([{}] if fields else [])
            for delta in deltas:
                yield self._chunk(index, delta, fields)
                fields = {}
            for call in change.mcp_calls:
                yield self._chunk(index, {"mcp_calls": [call]})
            if text_delta.finish is not None:
                yield self._chunk(index, {}, {"finish_reason": self._choices[index].finish})

    def _fields(self, text_delta: TextDelta, change: MessageChange) -> dict[str, Any]:
        """Returns the fields that the first chunk of a step has besides its delta."""
        fields: dict[str, Any] = {"log": text_delta.logs} if text_delta.logs else {}
        if change.backtrack:
            fields["backtrack"] = change.backtrack
        if change.backtrack_reasoning and self._body.include_reasoning is not False:
            fields["backtrack_reasoning"] = change.backtrack_reasoning
        if self._body.logprobs and text_delta.backtrack_tokens:
            fields["backtrack_tokens"] = text_delta.backtrack_tokens
        if self._body.logprobs and text_delta.tokens:
            fields["logprobs"] = self._logprobs(text_delta.tokens)
        return fields

    def _deltas(self, index: int, events: list[Event]) -> list[dict[str, Any]]:
        calls = self._choices[index].calls
        number = len(calls) - sum(isinstance(found, Call) for found in events)
        deltas: list[dict[str, Any]] = []
        for found in events:
            if isinstance(found, Call):
                deltas.append({"tool_calls": [{"index": number, **calls[number]}]})
                number += 1
            elif isinstance(found, Text):
                deltas.append({"content": found.text})
            elif isinstance(found, Reasoning) and self._body.include_reasoning is not False:
                deltas.append({"reasoning_content": found.text, "reasoning": found.text})
        return deltas

    def _chunk(
        self, index: int, delta: dict[str, Any], fields: Mapping[str, Any] | None = None
    ) -> ServerSentEvent:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None, **(fields or {})}
        return event({**self._head, "choices": [choice]})

    async def whole(self) -> dict[str, Any]:
        """Returns the answers when they are complete."""
        async for _ in self._answers():
            self._usage.check_whole()
        model = self._service.model
        return {
            **self._head,
            "choices": [
                {
                    "index": index,
                    "message": choice.message(reasoning=self._body.include_reasoning is not False),
                    "logprobs": {"content": chat_entries(model, choice.tokens), "refusal": None}
                    if self._body.logprobs
                    else None,
                    "finish_reason": choice.finish,
                    **({"log": choice.logs} if choice.logs else {}),
                }
                for index, choice in enumerate(self._choices)
            ],
            "usage": self._usage.wire(),
        }

    def _logprobs(self, tokens: list[TextToken]) -> dict[str, Any] | None:
        return chat_logprobs(self._service.model, tokens) if self._body.logprobs else None
