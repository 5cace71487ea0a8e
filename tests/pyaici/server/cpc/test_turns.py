"""Completions among other requests: turns, steps of other requests, and cancellation."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from typing import Any

import pytest

from pyaici.engines.hf.runner import PASS_COST
from pyaici.server.apis.cpc.completion import Completion, Covers, Task
from pyaici.server.apis.cpc.requests import CpcRequest
from pyaici.server.http.errors import ApiError
from pyaici.server.service import Service
from tests.pyaici.engines.batching.support import CountingCalls
from tests.pyaici.server.small import USER, job, small_engine, small_service


async def _complete(service: Service, covers: Covers, **fields: Any) -> str:
    request = CpcRequest(**{"context": "a = ", "prefix": "pri", "max_new_tokens": 2} | fields)
    completion = Completion(service, covers, request, USER)
    async with contextlib.aclosing(completion.chunks()) as chunks:
        return "".join([chunk async for chunk in chunks])


def test_completion_waits_for_its_turn() -> None:
    async def main() -> None:
        async with small_service(max_streams=1, max_waiting=1) as service:
            covers = Covers(service)
            async with service.turn(USER):
                waiting = asyncio.create_task(_complete(service, covers))
                while not len(service.waiting_room):
                    await asyncio.sleep(0.01)
                with pytest.raises(ApiError, match="waiting request") as refused:
                    await _complete(service, covers)
                assert refused.value.status == 503
                with pytest.raises(ApiError, match="waiting request"):
                    async with service.run(job(3)):
                        pass
                assert service.model.engine.stats.steps == 0 and not waiting.done()
            assert (await waiting).startswith("pri")
            # a completion needs only one turn, and the first one has given it back
            assert (await _complete(service, covers)).startswith("pri")
            covers.close()

    asyncio.run(main())


def test_waiting_completions_hold_no_turns() -> None:
    async def main() -> None:
        async with small_service(max_streams=1) as service:
            covers = Covers(service)
            async with covers.line(Task(CpcRequest(prefix="x"), USER, (1,), b"x")):
                texts = [asyncio.create_task(_complete(service, covers, context="b" * i)) for i in range(6)]
                async with service.run(job(3, max_tokens=3)) as stream:
                    async for _ in stream:
                        pass
                    assert stream.results is not None
                while len(service.waiting_room) < 6:  # all of them, not only the fast ones
                    await asyncio.sleep(0.01)
            assert all(text.startswith("pri") for text in await asyncio.gather(*texts))
            covers.close()

    asyncio.run(main())


def test_long_context_lets_others_step_and_can_be_cancelled() -> None:
    async def main() -> None:
        engine = small_engine(keep=2)
        async with small_service(engine) as service:
            covers = Covers(service)
            async with service.run(job(3)) as stream:
                await anext(stream)
                widths: list[int] = []
                with CountingCalls(engine._runner._model) as calls:
                    # healing must not move a part of the context
                    completing = asyncio.create_task(
                        _complete(service, covers, context="word " * 600 + "x", heal_context=False)
                    )
                    while not any(width > 1 for _, width in calls.shapes):
                        await anext(stream)
                    completing.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await completing
                    before = engine.stats.steps
                    while engine.stats.steps < before + 10:
                        await anext(stream)
                    widths = [width for _, width in calls.shapes if width > 1]
                # a step with a piece may take four times as long as without it
                most = 3 * (PASS_COST["cpu"] + 1) - PASS_COST["cpu"]
                assert max(widths) <= most and sum(widths) < 3001, "the context was read to its end"
                assert len(engine._runner.cache.slots) <= 3, "the slots of the stream and of kept sequences"
                with CountingCalls(engine._runner._model) as calls:
                    text = await _complete(service, covers, context="drow " * 600 + "x", heal_context=False)
                assert text.startswith("pri")
                wide = [place for place, (_, width) in enumerate(calls.shapes) if width > 1]
                assert len(wide) >= 3001 // most
                assert all(b - a > 1 for a, b in itertools.pairwise(wide))
            covers.close()

    asyncio.run(main())
