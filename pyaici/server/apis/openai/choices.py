"""Merges several answers into one stream, ends streams, and counts usage."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from pyaici.server.http.errors import ApiError, bad_request
from pyaici.server.http.sse import event

if TYPE_CHECKING:
    from sse_starlette import ServerSentEvent

    from pyaici.server.answers.text import TextDelta
    from pyaici.server.apis.openai.requests import StreamOptions
    from pyaici.server.models import ServedModel
    from pyaici.server.service import Job


Item = TypeVar("Item")
#: Most log-probabilities of an answer that is not streamed: each takes 200 bytes until it is sent.
MAX_LISTED = 1 << 19


def copies(job: Job, count: int) -> list[Job]:
    """Returns the job once for each answer, with consecutive seeds; all share the limit on log bytes."""
    seed = job.sampling.seed
    seeds = [None if seed is None else seed + number for number in range(count)]
    share = job.max_log_bytes // count
    return [replace(job, sampling=replace(job.sampling, seed=seed), max_log_bytes=share) for seed in seeds]


async def side_by_side(
    answers: Sequence[AsyncIterator[Item]],
) -> AsyncGenerator[tuple[int, Item], None]:
    """Yields (index of the answer, its next item) in order of arrival. An error of one answer ends all.

    An answer is read no faster than the items are taken; unread events count in the engine's streams.
    """
    if len(answers) == 1:
        async with contextlib.aclosing(answers[0]) as only:  # type: ignore[type-var]
            async for item in only:
                yield 0, item
        return
    arrived: asyncio.Queue[tuple[int, Item | None, BaseException | None]] = asyncio.Queue(1)

    async def pull(index: int, answer: AsyncIterator[Item]) -> None:
        error: BaseException | None = None
        try:
            async with contextlib.aclosing(answer) as items:  # type: ignore[type-var]
                async for item in items:
                    await arrived.put((index, item, None))
        except Exception as problem:
            error = problem
        await arrived.put((index, None, error))

    tasks = [asyncio.create_task(pull(index, answer)) for index, answer in enumerate(answers)]
    try:
        left = len(tasks)
        while left:
            index, more, error = await arrived.get()
            if error is not None:
                raise error
            if more is None:
                left -= 1
            else:
                yield index, more
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def answer_head(model: ServedModel, prefix: str, kind: str) -> dict[str, Any]:
    """Returns the fields that an answer and each of its chunks begin with."""
    return {
        "id": f"{prefix}-{uuid.uuid4().hex}",
        "object": kind,
        "created": int(time.time()),
        "model": model.name,
        "system_fingerprint": model.fingerprint,
    }


class Usage:
    """Counts the tokens of all answers of a request."""

    def __init__(self, prompts: Sequence[Sequence[int]], each: int) -> None:
        """`each`: answers to each prompt."""
        self._prompts, self._each = [len(prompt) for prompt in prompts], each
        #: tokens of the answers, and of results of tools that the model has read between them
        self._completion = self._read = 0
        #: tokens of the prompt that were in the cache, by answer
        self._cached: Counter[int] = Counter()
        #: log-probabilities of tokens so far, with those of the most likely tokens
        self._listed = 0
        #: whether the client has received anything: then an error can no longer be a status
        self.begun = False

    def count_delta(self, delta: TextDelta, index: int) -> None:
        """Counts a delta of the answer at `index`."""
        self._completion += delta.grown
        self._read += delta.read
        self._listed += sum(1 + len(token.top or ()) for token in delta.tokens if token.logprob is not None)
        self._cached[index] = max(self._cached[index], delta.cached)
        self.begun = True

    def check_whole(self) -> None:
        """Raises ApiError if an answer that is not streamed has too many log-probabilities."""
        if self._listed > MAX_LISTED:
            raise bad_request(
                f"the answer would list more than {MAX_LISTED} log-probabilities: ask for a stream, or for "
                "fewer of them",
                "stream",
            )

    def wire(self) -> dict[str, Any]:
        """Returns the counts in the format of OpenAI's API.

        Answers to the same prompt share it: what one of them had to compute was not in the cache.
        """
        prompt_tokens, cached = sum(self._prompts) + self._read, 0
        for number, length in enumerate(self._prompts):
            answers = range(number * self._each, (number + 1) * self._each)
            cached += min(length, *(self._cached[index] for index in answers))
        return {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": self._completion,
            "total_tokens": prompt_tokens + self._completion,
            "prompt_tokens_details": {"cached_tokens": cached},
        }


async def ended(
    chunks: AsyncGenerator[ServerSentEvent, None],
    usage: Usage,
    options: StreamOptions | None,
    head: Mapping[str, Any],
) -> AsyncGenerator[ServerSentEvent, None]:
    """Yields the chunks, then the usage if asked for, and the end of the stream.

    An ApiError before the first answer has begun is raised, as it can still be a status.
    """
    try:
        async with contextlib.aclosing(chunks):
            async for chunk in chunks:
                yield chunk
    except ApiError as error:
        if not usage.begun:
            raise
        yield event(error.body())
    else:
        if options is not None and options.include_usage:
            yield event({**head, "choices": [], "usage": usage.wire()})
    yield event("[DONE]")
