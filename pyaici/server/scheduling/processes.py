"""Notices the end of other processes in the event loop, whatever the engine's thread is doing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from aicirt.system.files import Descriptor


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
