"""`POST /v1/chat/completions`."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter, Request, Response
from sse_starlette import ServerSentEvent

from pyaici.server.access import Runner
from pyaici.server.openai.chat_plan import ChatPlan, plan_chat
from pyaici.server.openai.choices import copies, side_by_side
from pyaici.server.openai.logprobs import chat_logprobs
from pyaici.server.openai.reader import AnswerReader, Call, Part
from pyaici.server.openai.requests import ChatRequest
from pyaici.server.openai.stream_end import ended
from pyaici.server.openai.usage import Usage
from pyaici.server.service import Service
from pyaici.server.speech import Said, SaidToken, speak
from pyaici.server.sse import STREAM_OR_JSON, event, stream_events, while_connected

router = APIRouter(tags=["openai"])


@router.post("/v1/chat/completions", response_model=None, responses=STREAM_OR_JSON)
async def chat(request: Request, body: ChatRequest, user: Runner) -> Response | dict[str, Any]:
    """Answers a chat, as in OpenAI's API; docs/openai.md has the fields that constrain the answer."""
    service: Service = request.app.state.service
    service.model.check_name(body.model)
    answer = _Chat(service, body, plan_chat(service.model, body, user))
    if body.stream:
        return await stream_events(request, answer.events(), service.settings)
    return await while_connected(request, answer.whole())


@dataclass(slots=True)
class _Choice:
    """One answer as far as it has come."""

    reader: AnswerReader
    content: str = ""
    reasoning: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)
    tokens: list[SaidToken] = field(default_factory=list)
    finish: str | None = None

    def take(self, parts: list[Part], said: Said) -> None:
        """More of the answer; a controller may have taken back a part of it first."""
        if said.retracted:
            self.content = self.content[: max(0, len(self.content) - said.retracted)]
            self.tokens = [token for token in self.tokens if token.start < len(self.content)]
        self.tokens += said.tokens
        for part in parts:
            if isinstance(part, Call):
                function = {"name": part.name, "arguments": part.arguments}
                call_id = f"call_{uuid.uuid4().hex[:24]}"
                self.calls.append({"id": call_id, "type": "function", "function": function})
            elif part.kind == "reasoning":
                self.reasoning += part.text
            else:
                self.content += part.text

    def message(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.calls:
            message |= {"content": self.content or None, "tool_calls": self.calls}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        return message


class _Chat:
    """One request: `n` answers to its chat."""

    def __init__(self, service: Service, body: ChatRequest, plan: ChatPlan) -> None:
        self._service, self._body = service, body
        count = body.n or 1
        self._jobs = copies(plan.job, count)
        self._choices = [_Choice(AnswerReader(plan.start, plan.form)) for _ in range(count)]
        self._usage = Usage(len(plan.job.prompt))
        self._head = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": "chat.completion.chunk" if body.stream else "chat.completion",
            "created": int(time.time()),
            "model": service.model.name,
        }

    async def _answers(self) -> AsyncIterator[tuple[int, Said, list[Part]]]:
        stop = self._body.stop_strings
        async for index, said in side_by_side([speak(self._service, job, stop) for job in self._jobs]):
            choice = self._choices[index]
            self._usage.count(said)
            parts = choice.reader.feed(said.text)
            if said.finish is not None:
                parts += choice.reader.end()
                choice.finish = "tool_calls" if choice.reader.calls else said.finish
            choice.take(parts, said)
            yield index, said, parts

    def events(self) -> AsyncGenerator[ServerSentEvent, None]:
        """The answers in pieces."""
        return ended(self._chunks(), self._usage, self._body.stream_options, self._head)

    async def _chunks(self) -> AsyncGenerator[ServerSentEvent, None]:
        begun: set[int] = set()
        async for index, said, parts in self._answers():
            if index not in begun:
                begun.add(index)
                yield self._chunk(index, {"role": "assistant", "content": ""})
            deltas = self._deltas(index, parts)
            if not deltas and (said.retracted or (self._body.logprobs and said.tokens)):
                deltas = [{}]
            for number, delta in enumerate(deltas):
                yield self._chunk(index, delta, said if number == 0 else None)
            if said.finish is not None:
                yield self._chunk(index, {}, finish=self._choices[index].finish)

    def _deltas(self, index: int, parts: list[Part]) -> list[dict[str, Any]]:
        calls = self._choices[index].calls
        number = len(calls) - sum(isinstance(part, Call) for part in parts)
        deltas: list[dict[str, Any]] = []
        for part in parts:
            if isinstance(part, Call):
                deltas.append({"tool_calls": [{"index": number, **calls[number]}]})
                number += 1
            else:
                deltas.append({"reasoning_content" if part.kind == "reasoning" else "content": part.text})
        return deltas

    def _chunk(
        self, index: int, delta: dict[str, Any], said: Said | None = None, finish: str | None = None
    ) -> ServerSentEvent:
        """`said`: what the tokens and the retraction of this chunk are of."""
        tokens = [] if said is None else said.tokens
        choice: dict[str, Any] = {
            "index": index,
            "delta": delta,
            "logprobs": self._logprobs(tokens) if tokens else None,
            "finish_reason": finish,
        }
        if said is not None and said.retracted:
            choice["retracted"] = said.retracted
        return event({**self._head, "choices": [choice]})

    async def whole(self) -> dict[str, Any]:
        """The answers when they are complete."""
        async for _ in self._answers():
            pass
        return {
            **self._head,
            "choices": [
                {
                    "index": index,
                    "message": choice.message(),
                    "logprobs": self._logprobs(choice.tokens),
                    "finish_reason": choice.finish,
                }
                for index, choice in enumerate(self._choices)
            ],
            "usage": self._usage.wire(),
        }

    def _logprobs(self, tokens: list[SaidToken]) -> dict[str, Any] | None:
        return chat_logprobs(self._service.model, tokens) if self._body.logprobs else None
