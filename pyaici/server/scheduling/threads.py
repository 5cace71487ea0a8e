"""Runs blocking calls in threads, and ends a call when its waiting task is cancelled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from pyaici.client.control import abandoned

Result = TypeVar("Result")


async def in_own_thread(call: Callable[[], Result]) -> Result:
    """Returns or raises what `call` does, called in a new thread.

    Cancelling this coroutine also cancels the request that `call` has sent to aicirt. CancelledError is
    raised only after `call` has ended, so that a caller who holds a turn keeps it until then.
    """
    done: Future[Result] = Future()
    done.set_running_or_notify_cancel()
    left = threading.Event()

    def work() -> None:
        abandoned.set(left)  # each thread has its own context
        try:
            done.set_result(call())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=work, name="blocking", daemon=True).start()
    waiting = asyncio.wrap_future(done)
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        left.set()
        await asyncio.wait([waiting])
        waiting.exception()  # marks the exception as retrieved
        raise
