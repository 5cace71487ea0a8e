"""Runs blocking calls in threads, and ends a call when its waiting task is cancelled."""

from __future__ import annotations

import threading
from collections.abc import Callable

from aicirt.system.threads import Result, in_thread
from pyaici.client.control import abandoned


async def in_own_thread(call: Callable[[], Result]) -> Result:
    """Returns or raises what `call` does, as `in_thread`.

    Cancelling this coroutine also cancels the request that `call` has sent to aicirt.
    """
    left = threading.Event()

    def work() -> Result:
        abandoned.set(left)  # each thread has its own context
        return call()

    return await in_thread(work, left.set)
