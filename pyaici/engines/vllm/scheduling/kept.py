"""Blocks of vLLM's cache that requests keep while they wait, so that they need not read tokens again."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from typing import Any

from vllm.v1.request import RequestStatus


class KeptBlocks:
    """The waiting requests of one scheduler that hold blocks.

    A suspended request gives its blocks back when its time is over. All of them do earlier, the least
    recently suspended first, as soon as another request finds too few blocks, so that none can starve. vLLM
    finds blocks that were given back by their hashes, unless others have taken them.
    """

    def __init__(self, scheduler: Any) -> None:
        """`scheduler`: not used before its constructor has finished."""
        self._scheduler = scheduler
        #: by request id: when the blocks must be given back, by `time.monotonic`
        self._until: dict[str, float] = {}
        self._watching = False

    def keep_for(self, request: Any, seconds: float) -> None:
        """Lets a request that has just been suspended keep its blocks for this time."""
        self.watch()
        self._until.pop(request.request_id, None)  # it becomes the last one
        self._until[request.request_id] = time.monotonic() + seconds

    def forget(self, request_id: str) -> None:
        """Forgets a request that runs again, or has ended."""
        self._until.pop(request_id, None)

    def release_expired(self) -> None:
        """Gives back the blocks of requests whose time is over. Call it between two steps."""
        now = time.monotonic()
        for request_id in [request_id for request_id, until in self._until.items() if until <= now]:
            self._release(self._scheduler.requests[request_id])

    def watch(self) -> None:
        """From now on, a request that finds too few blocks takes those of waiting requests."""
        if self._watching:
            return
        self._watching = True
        manager = self._scheduler.kv_cache_manager
        allocate = manager.allocate_slots

        @functools.wraps(allocate)
        def allocate_or_take(request: Any, *args: Any, **keywords: Any) -> Any:
            blocks = allocate(request, *args, **keywords)
            holders = self._holders(request)
            while blocks is None and (holder := next(holders, None)) is not None:
                self._release(holder)
                blocks = allocate(request, *args, **keywords)
            return blocks

        manager.allocate_slots = allocate_or_take

    def _holders(self, request: Any) -> Iterator[Any]:
        """Yields those that give way to `request`: suspended ones that this step does not run, moved ones."""
        for other in [self._scheduler.requests[request_id] for request_id in self._until]:
            if other is not request and other.status != RequestStatus.RUNNING:
                yield other
        for other in list(self._scheduler.kv_holding_waiting):
            if other is not request and other.status == RequestStatus.WAITING and other.num_computed_tokens:
                yield other

    def _release(self, request: Any) -> None:
        """Frees the blocks of a waiting request. vLLM's queues stay: it may be going through them."""
        self._until.pop(request.request_id, None)
        self._scheduler._free_request_blocks(request)
        self._scheduler.encoder_cache_manager.free(request)
        request.num_computed_tokens = 0
