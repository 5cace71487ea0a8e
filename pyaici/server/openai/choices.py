"""Several answers at the same time, as one stream."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
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
