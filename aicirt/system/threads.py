"""For asyncio: runs blocking calls in threads, and notices the end of processes."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from aicirt.system.files import Descriptor

Result = TypeVar("Result")


async def in_thread(call: Callable[[], Result], cancelled: Callable[[], None] | None = None) -> Result:
    """Returns or raises what `call` does, called in a new thread that does not delay the exit of the process.

    Cancelling this coroutine calls `cancelled`. CancelledError is raised only after `call` has ended, so that
    a caller who holds a turn keeps it until then.
    """
    done: Future[Result] = Future()
    done.set_running_or_notify_cancel()

    def work() -> None:
        try:
            done.set_result(call())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=work, name="blocking", daemon=True).start()
    waiting = asyncio.wrap_future(done)
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        if cancelled is not None:
            cancelled()
        await asyncio.wait([waiting])
        waiting.exception()  # marks the exception as retrieved
        raise


def call_at_end(pid: int, call: Callable[[], None]) -> None:
    """Calls `call` in the running event loop when the process has ended.

    Raises ProcessLookupError if there is no such process, and OSError if it cannot be watched.
    """
    loop = asyncio.get_running_loop()
    watched = Descriptor(os.pidfd_open(pid))

    def call_once() -> None:
        loop.remove_reader(watched.fd)
        call()

    loop.add_reader(watched.fd, call_once)
