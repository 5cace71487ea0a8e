"""Several answers in one stream: none is read faster than the client reads."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator

import pytest

from pyaici.server.answers.text import TextDelta, TextToken
from pyaici.server.apis.openai.choices import Usage, side_by_side
from pyaici.server.http.errors import ApiError


def test_answers_wait_for_their_reader() -> None:
    made: Counter[int] = Counter()

    async def answer(number: int) -> AsyncGenerator[int, None]:
        while True:
            made[number] += 1
            yield made[number]
            await asyncio.sleep(0)

    async def main() -> None:
        together = side_by_side([answer(number) for number in range(4)])
        for _ in range(8):
            await anext(together)
        for _ in range(100):
            await asyncio.sleep(0)
        assert sum(made.values()) <= 8 + 1 + 4, (
            "one item waits to be read, and one of each answer to be passed on"
        )
        await together.aclose()  # type: ignore[attr-defined]

    asyncio.run(main())


def test_error_of_one_answer_ends_all() -> None:
    async def answer(number: int) -> AsyncGenerator[int, None]:
        yield number
        if number == 2:
            raise ValueError("no")
        await asyncio.Event().wait()

    async def main() -> None:
        with pytest.raises(ValueError, match="no"):
            async for _ in side_by_side([answer(number) for number in range(4)]):
                pass

    asyncio.run(main())


def test_an_answer_that_is_not_streamed_has_a_bounded_number_of_log_probabilities() -> None:
    usage = Usage([[1]], 1)
    listed = TextDelta(tokens=[TextToken(1, 0, -1.0, [(1, -1.0)] * 20)] * 1000)
    for _ in range(24):
        usage.count_delta(listed, 0)
        usage.count_delta(TextDelta(tokens=[TextToken(1, 0)] * 100_000), 0)  # none was asked for
        usage.check_whole()
    usage.count_delta(listed, 0)
    with pytest.raises(ApiError, match="ask for a stream"):
        usage.check_whole()
