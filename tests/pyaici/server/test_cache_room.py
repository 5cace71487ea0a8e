"""Requests to a server whose model has a small key-value cache."""

from __future__ import annotations

import asyncio

import pytest

from pyaici.engines.engine import FinishReason, GenerationResult
from pyaici.server.apis.cpc.completion import Completion, Covers
from pyaici.server.apis.cpc.requests import CpcRequest
from pyaici.server.http.errors import ApiError
from pyaici.server.service import Service
from tests.pyaici.server.small import USER, job, small_engine, small_service


async def _run(service: Service, length: int, max_tokens: int) -> GenerationResult:
    async with service.run(job(length, max_tokens)) as stream:
        async for _ in stream:
            pass
        assert stream.results is not None
        (result,) = stream.results
        return result


def test_requests_wait_for_room_in_a_small_cache() -> None:
    async def main() -> None:
        async with small_service(small_engine(keep=4, cache_tokens=1024)) as service:
            alone = await _run(service, 5, 200)
            lengths = (5, 100, 700, 5, 300, 5, 800, 5)
            results = await asyncio.gather(*(_run(service, length, 200) for length in lengths))
            assert all(result.error is None for result in results)
            assert [r.tokens for r, n in zip(results, lengths, strict=True) if n == 5] == [alone.tokens] * 4
            longest = await _run(service, 1000, 3000)
            assert longest.finish_reason is FinishReason.LENGTH and len(longest.tokens) == 1024
            with pytest.raises(ApiError, match="the prompt has 1024 tokens; the model takes 1024"):
                await _run(service, 1024, 1)

    asyncio.run(main())


def test_completion_without_room_in_the_cache_is_refused() -> None:
    async def main() -> None:
        async with small_service(small_engine(cache_tokens=1024)) as service:
            covers = Covers(service)
            completion = Completion(service, covers, CpcRequest(context="x = ", prefix="pri"), USER)
            async with service.run(job(3, 1000)) as stream:
                await anext(stream)
                with pytest.raises(ApiError, match="no room now") as refused:
                    await anext(completion.chunks())
                assert (refused.value.status, refused.value.code) == (503, "space")
            assert (await anext(completion.chunks())).startswith("p")
            covers.close()

    asyncio.run(main())
