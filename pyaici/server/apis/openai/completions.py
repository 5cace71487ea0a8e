"""Route `POST /v1/completions`."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncGenerator, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from fastapi import APIRouter, Request, Response
from sse_starlette import ServerSentEvent

from aicirt.contract.errors import counted
from pyaici.server.answers.stops import StopFinder
from pyaici.server.answers.text import TextDelta, TextToken, answer_deltas
from pyaici.server.apis.answers import in_pieces, respond
from pyaici.server.apis.json_bodies import JsonRoute
from pyaici.server.apis.openai.choices import Usage, answer_head, copies, ended, side_by_side
from pyaici.server.apis.openai.constraints import constraint
from pyaici.server.apis.openai.logprobs import PromptScores, completion_columns, completion_logprobs
from pyaici.server.apis.openai.requests import CompletionRequest
from pyaici.server.apis.sampling import sampling
from pyaici.server.http.access import Runner
from pyaici.server.http.errors import bad_request
from pyaici.server.http.sse import STREAM_OR_JSON, event, while_connected
from pyaici.server.http.users import User
from pyaici.server.models import ServedModel
from pyaici.server.service import Job, Service

router = APIRouter(tags=["openai"], route_class=JsonRoute)
#: default number of tokens, as in OpenAI's API
_MAX_TOKENS = 16


@router.post("/v1/completions", response_model=None, responses=STREAM_OR_JSON)
async def complete(request: Request, response: Response, body: CompletionRequest, user: Runner) -> Response:
    """Continues a text, as in OpenAI's API; docs/openai.md describes the fields that constrain it."""
    service: Service = request.app.state.service
    service.model.check_name(body.model)
    read = service.reading.read(user, partial(_Completion, service, body, user))
    answer = await while_connected(request, read)
    return await respond(request, response, body, answer, stream=body.stream)


class _Completion:
    """A request: `n` answers to each of its prompts."""

    def __init__(self, service: Service, body: CompletionRequest, user: User) -> None:
        self._model: ServedModel = service.model
        self._service, self._body = service, body
        count = body.n or 1
        number = len(body.prompts)
        if number * count > service.settings.max_streams:
            raise bad_request(
                f"{counted(number, 'prompt')} with {counted(count, 'answer')} each are "
                f"{number * count} sequences; at most {service.settings.max_streams} are allowed at a time",
                "n",
            )
        special = body.add_special_tokens is not False
        prompts = [service.model.encode(prompt, special=special) for prompt in body.prompts]
        first = Job(
            user,
            prompts[0],
            constraint(body, body.response_format, xargs=body.vllm_xargs),
            sampling(body, service.model),
            min(_MAX_TOKENS, service.settings.max_tokens) if body.max_tokens is None else body.max_tokens,
            logprobs=body.logprobs is not None,
            top_logprobs=body.logprobs or 0,
        )
        self._jobs = [job for prompt in prompts for job in copies(replace(first, prompt=prompt), count)]
        self._echoed = (
            [text for text in map(self._text, prompts) for _ in range(count)] if body.echo else None
        )
        #: scores the prompts, and their log-probabilities for each answer
        self._scores: PromptScores | None = None
        self._prompt_logprobs: list[dict[str, Any]] | None = None
        if body.echo and body.logprobs is not None:
            self._scores = PromptScores(prompts, body.logprobs)
            self._scores.check(service.model)
        self._user = user
        self._usage = Usage(prompts, count)
        self._head = answer_head(service.model, "cmpl", "text_completion")

    def _text(self, prompt: list[int]) -> str:
        return self._model.vocabulary.decode(prompt).decode("utf-8", "replace")

    async def _answers(self) -> AsyncGenerator[tuple[int, TextDelta], None]:
        if self._scores is not None:
            found = await self._scores.compute(self._service, self._user)
            self._prompt_logprobs = [wire for wire in found for _ in range(self._body.n or 1)]
        if self._body.max_tokens == 0:
            for index in range(len(self._jobs)):
                yield index, TextDelta(finish="length")
            return
        stop = self._body.stop_strings
        answers = side_by_side([answer_deltas(self._service, job, StopFinder(stop)) for job in self._jobs])
        async with contextlib.aclosing(answers):
            async for item in answers:
                yield item

    def events(self) -> AsyncGenerator[ServerSentEvent, None]:
        """Returns the answers as a stream."""
        return ended(self._chunks(), self._usage, self._body.stream_options, self._head)

    async def _chunks(self) -> AsyncGenerator[ServerSentEvent, None]:
        begun: set[int] = set()
        async for index, delta in self._answers():
            self._usage.count_delta(delta, index)
            echoed = self._echoed[index] if self._echoed and index not in begun else ""
            if (
                delta.text
                or delta.backtrack
                or delta.finish
                or delta.tokens
                or delta.backtrack_tokens
                or delta.logs
                or echoed
            ):
                chunk = {**self._head, "choices": [self._choice(index, delta, echoed)]}
                # with the log-probabilities of the prompt, it is as long as a whole answer
                yield event(await in_pieces(chunk) if echoed else chunk)
            elif not begun:
                yield ServerSentEvent(comment="accepted", sep="\n")
            begun.add(index)

    def _choice(self, index: int, delta: TextDelta, echoed: str) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "index": index,
            "text": echoed + delta.text,
            "logprobs": self._columns(index, delta.tokens) if echoed else self._lists(index, delta.tokens),
            "finish_reason": delta.finish,
        }
        if delta.backtrack:
            choice["backtrack"] = delta.backtrack
        if delta.backtrack_tokens and self._body.logprobs is not None:
            choice["backtrack_tokens"] = delta.backtrack_tokens
        if delta.logs:
            choice["log"] = delta.logs
        return choice

    async def whole(self) -> dict[str, Any]:
        """Returns the answers when they are complete."""
        texts = self._echoed or [""] * len(self._jobs)
        answers = [""] * len(self._jobs)
        tokens: list[list[TextToken]] = [[] for _ in self._jobs]
        finish: list[str | None] = [None] * len(self._jobs)
        logs = [""] * len(self._jobs)
        async for index, delta in self._answers():
            kept = answers[index][: len(answers[index]) - delta.backtrack]
            answers[index] = kept + delta.text
            del tokens[index][len(tokens[index]) - delta.backtrack_tokens :]
            tokens[index] += delta.tokens
            finish[index] = delta.finish
            logs[index] += delta.logs
            self._usage.count_delta(delta, index)
            self._usage.check_whole()
        return {
            **self._head,
            "choices": [
                {
                    "index": index,
                    "text": texts[index] + answers[index],
                    "logprobs": self._columns(index, tokens[index]),
                    "finish_reason": finish[index],
                    **({"log": logs[index]} if logs[index] else {}),
                }
                for index in range(len(self._jobs))
            ],
            "usage": self._usage.wire(),
        }

    def _lists(self, index: int, tokens: list[TextToken]) -> dict[str, list[Any]] | None:
        """Returns the log-probabilities of a few tokens, which the prompt or others precede."""
        if self._body.logprobs is None:
            return None
        return completion_logprobs(self._model, tokens, len(self._echoed[index]) if self._echoed else 0)

    def _columns(self, index: int, tokens: list[TextToken]) -> dict[str, Iterator[Any]] | None:
        """Returns log-probabilities, first those of the prompt if it is echoed, for `in_pieces`.

        Text offsets count from the start of the choice's text, which begins with the echoed prompt.
        """
        if self._body.logprobs is None:
            return None
        columns = completion_columns(self._model, tokens, len(self._echoed[index]) if self._echoed else 0)
        if self._prompt_logprobs is not None:
            before = self._prompt_logprobs[index]
            columns = {name: itertools.chain(before[name], values) for name, values in columns.items()}
        return columns
