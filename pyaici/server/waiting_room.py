"""How many requests wait, whatever they wait for: of each caller, and of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from pyaici.server.errors import busy, too_many

if TYPE_CHECKING:
    from pyaici.server.settings import ServerSettings


class WaitingRoom:
    """Who finds it full is told to come again: that bounds the memory of one caller, and of all."""

    def __init__(self, most: int, each: int) -> None:
        """So many requests of all may wait, and so many of one caller."""
        self._most = most
        self._each = each
        self._waiting: Counter[str] = Counter()

    @classmethod
    def for_streams(cls, settings: ServerSettings) -> Self:
        """Of those that are ready to generate."""
        return cls(settings.max_waiting, settings.max_waiting_each)

    @classmethod
    def before_streams(cls, settings: ServerSettings) -> Self:
        """Of those that are not ready yet: of as many as may generate, and wait for that."""
        streams = settings.max_streams
        return cls(settings.max_waiting + streams, settings.max_waiting_each + streams)

    def __len__(self) -> int:
        """How many wait."""
        return self._waiting.total()

    @contextmanager
    def waiting(self, caller: str) -> Iterator[None]:
        """Around the waiting. Raises ApiError: 429 if it is full of this caller's requests, else 503."""
        own, total = self._waiting[caller], len(self)
        if own >= self._each:
            raise too_many(f"{own} requests of yours wait already: send more when some have been answered")
        if total >= self._most:
            raise busy(f"{total} requests wait already: try again later")
        self._waiting[caller] += 1
        try:
            yield
        finally:
            self._waiting[caller] -= 1
            if not self._waiting[caller]:
                del self._waiting[caller]
