"""Stored responses: kept in memory for their owner, bounded in number, bytes and time."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aicirt.contract.owners import to_evict
from pyaici.server.http.errors import ApiError, not_found

if TYPE_CHECKING:
    from pyaici.server.settings import ServerSettings

#: one response may take this share of all bytes, so that it cannot push many others out
_SHARE = 4
#: bytes of an entry beside its texts
_ENTRY = 512


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response, its output alone, and the items of the conversation before it, all as JSON."""

    response: bytes
    items: bytes
    #: what requests that continue it need, beside `items`: a response may repeat long instructions and tools
    output: bytes = b"[]"
    #: ids of the items of its output
    ids: frozenset[str] = frozenset()

    @property
    def size(self) -> int:
        """Bytes that it takes."""
        return _ENTRY + len(self.response) + len(self.items) + len(self.output)


class ResponseStore:
    """Responses by id. For more room, the owner with the most bytes loses the one unused for longest."""

    def __init__(self, settings: ServerSettings, now: Callable[[], float] = time.monotonic) -> None:
        """`now`: returns the time in seconds."""
        self._count, self._bytes = settings.max_stored, settings.max_stored_bytes
        self._seconds, self._now = settings.stored_s, now
        #: id -> (owner, response, when it expires), the least recently used first
        self._entries: OrderedDict[str, tuple[str, StoredResponse, float]] = OrderedDict()
        self._size = 0

    @property
    def enabled(self) -> bool:
        """Whether responses are stored at all."""
        return self._count > 0

    def put(self, owner: str, name: str, stored: StoredResponse) -> bool:
        """Stores a response under an id. Returns False if it is too large."""
        if not self.enabled or stored.size > self._bytes // _SHARE:
            return False
        self._expire()
        self._entries[name] = owner, stored, self._now() + self._seconds
        self._size += stored.size
        while len(self._entries) > self._count or self._size > self._bytes:
            entries = self._entries.items()
            self._discard(to_evict((key, holder, kept.size) for key, (holder, kept, _) in entries))
        return True

    def get(self, owner: str, name: str, param: str | None = None) -> StoredResponse:
        """Returns an owner's response, which is kept for longer then.

        Raises ApiError, with the request's field `param`, also for the response of another owner.
        """
        self._expire()
        holder, stored, _ = self._entries.get(name, ("", None, 0.0))
        if stored is None or holder != owner:
            raise self._missing(name, param)
        self._entries[name] = owner, stored, self._now() + self._seconds
        self._entries.move_to_end(name)
        return stored

    def having(self, owner: str, ids: Set[str]) -> list[StoredResponse]:
        """Returns an owner's responses whose output has any of these items."""
        self._expire()
        found = self._entries.values() if ids else ()
        return [kept for holder, kept, _ in found if holder == owner and not kept.ids.isdisjoint(ids)]

    def delete(self, owner: str, name: str) -> None:
        """Deletes an owner's response. Raises what `get` raises."""
        self.get(owner, name)
        self._discard(name)

    def _missing(self, name: str, param: str | None) -> ApiError:
        return not_found(
            f"there is no response {name[:64]!r}: it was not stored, has expired after {self._seconds:g} s "
            "without use, or had to make room; send its items as input",
            param,
        )

    def _expire(self) -> None:
        """Drops what has expired. Each use moves an entry to the end, so the first expires first."""
        while self._entries:
            name, (_, _, expires) = next(iter(self._entries.items()))
            if expires > self._now():
                return
            self._discard(name)

    def _discard(self, name: str) -> None:
        self._size -= self._entries.pop(name)[1].size
