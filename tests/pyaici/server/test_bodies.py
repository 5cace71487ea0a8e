"""Bodies of requests count for the memory that they take, in however many pieces they arrive."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, cast

import pytest

from pyaici.server.http.bodies import BodyLimit, BodyRefused
from pyaici.server.settings import ServerSettings

SETTINGS = ServerSettings(max_body_bytes=80_000, max_upload_bytes=80_000, max_bodies_bytes=80_000)


def read(pieces: list[bytes]) -> tuple[int, int]:
    """Has an application read a body in these pieces; returns their memory, and how much of it counts."""
    counted = 0
    arriving = iter(pieces)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": next(arriving)}

    async def application(_: Any, receive: Any, __: Any) -> None:
        nonlocal counted
        for _piece in pieces:
            await receive()
        counted = limit._bytes._total

    limit = BodyLimit(application, SETTINGS, frozenset())
    asyncio.run(limit({"type": "http", "path": "/", "headers": []}, receive, cast(Any, None)))
    assert limit._bytes._total == 0 and not limit._bytes._held
    return sum(map(sys.getsizeof, pieces)) + sys.getsizeof(pieces), counted


@pytest.mark.parametrize("size", [2, 100, 1460])
def test_pieces_count_for_the_memory_that_they_take(size: int) -> None:
    held, counted = read([bytes(size)] * 50)
    assert 0.9 * held < counted < 1.1 * held


def test_many_short_pieces_are_refused_before_the_body_is_too_large() -> None:
    with pytest.raises(BodyRefused, match="the bodies of your requests under way"):
        read([b"xy"] * 3000)


def test_the_largest_body_fits_in_packets() -> None:
    read([bytes(1000)] * 80)
    with pytest.raises(BodyRefused, match="the body is larger than the 80000 bytes"):
        read([bytes(1000)] * 81)
