"""Calls that block, in threads: each ends when nobody waits for it any more."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from pyaici.client.control import abandoned

Result = TypeVar("Result")


async def in_own_thread(call: Callable[[], Result]) -> Result:
    """Returns or raises what `call` does.

    When this is cancelled, what `call` asks of aicirt is cancelled too. It raises CancelledError only after
    `call` has ended, so that whoever holds a turn for it keeps the turn until then.
    """
    done: Future[Result] = Future()
    done.set_running_or_notify_cancel()
    left = threading.Event()

    def work() -> None:
        abandoned.set(left)  # contexts are each thread's own
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
        waiting.exception()  # nobody asks for it
        raise
