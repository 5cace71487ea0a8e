"""Several answers at the same time, as one stream; how every stream ends, and what it has used."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from pyaici.server.http.errors import ApiError
from pyaici.server.http.sse import event

if TYPE_CHECKING:
    from sse_starlette import ServerSentEvent

    from pyaici.server.apis.openai.requests import StreamOptions
    from pyaici.server.apis.text import TextDelta
    from pyaici.server.service import Job


Item = TypeVar("Item")


def copies(job: Job, count: int) -> list[Job]:
    """The job once for each answer; with a seed, each has the next one. They share what one may use."""
    seed = job.sampling.seed
    seeds = [None if seed is None else seed + number for number in range(count)]
    share = job.max_log_bytes // count
    return [replace(job, sampling=replace(job.sampling, seed=seed), max_log_bytes=share) for seed in seeds]


async def side_by_side(answers: Sequence[AsyncIterator[Item]]) -> AsyncIterator[tuple[int, Item]]:
    """(which answer, its next item), as they come. What one fails with ends all.

    An answer is read only as fast as the items are: what waits is counted by the streams of the engine.
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


class Usage:
    """Counts the tokens of all answers of a request."""

    def __init__(self, prompt_tokens: int) -> None:
        self._prompt = prompt_tokens
        self._completion = 0
        #: the client has got something: an error cannot become a status any more
        self.begun = False

    def count(self, said: TextDelta) -> None:
        """One of the answers goes on."""
        self._completion += said.grown
        self.begun = True

    def wire(self) -> dict[str, int]:
        """As OpenAI's API has it."""
        return {
            "prompt_tokens": self._prompt,
            "completion_tokens": self._completion,
            "total_tokens": self._prompt + self._completion,
        }


async def ended(
    chunks: AsyncGenerator[ServerSentEvent, None],
    usage: Usage,
    options: StreamOptions | None,
    head: Mapping[str, Any],
) -> AsyncGenerator[ServerSentEvent, None]:
    """The chunks, and the end. Raises ApiError before the first answer has begun: it can be a status then."""
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
