"""`python -m pyaici.tools`: answers calls until its parent ends; settings come as JSON on standard input.

Each line of its standard output is JSON: `sources`, the state of each server and how many tools it offers;
`ready`, whether all servers have been tried; and `servers`, the calls and the problem of each
(`OfferedTools`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from aicirt.contract.errors import AiciError, RuntimeFailure
from aicirt.system import logs
from aicirt.system.threads import call_at_end
from pyaici.client.calls import Answerer
from pyaici.client.control import Control
from pyaici.tools.desk import Desk
from pyaici.tools.settings import START_SECONDS, ToolSettings

_log = logging.getLogger("aicirt.tools")
#: loggers of libraries, which show contents
_SILENT = ("mcp", "client", "httpx2", "httpcore2", "anyio")
_RETRY_SECONDS = 0.1


async def _connect(path: Path, ended: asyncio.Event) -> Control | None:
    """Connects to aicirt, which may be starting; None if `ended`. Raises RuntimeFailure."""
    deadline = time.monotonic() + 2 * START_SECONDS
    while not ended.is_set():
        try:
            return await asyncio.to_thread(Control, path, role="answers")
        except RuntimeFailure:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(_RETRY_SECONDS)
    return None


async def serve(
    control: Control, settings: ToolSettings, environment: dict[str, str], ended: asyncio.Event
) -> None:
    """Answers calls until `ended`, or until the connection to aicirt ends."""
    with contextlib.closing(Answerer(control)) as answerer:
        desk = Desk(answerer, settings.seconds, settings.calls)
        works: list[asyncio.Task[None]] = []
        fixed = 0
        if settings.http_allow:
            from pyaici.tools.allowed import AllowList
            from pyaici.tools.http import DESCRIPTION, Http

            http = Http(AllowList(settings.http_allow), settings.seconds)
            await desk.offer([DESCRIPTION], http.call)
            fixed = 1
        servers: list[Any] = []

        def changed() -> None:
            known = {server.name: {"state": server.state, "tools": server.tools} for server in servers}
            if fixed:
                known["http"] = {"state": "running", "tools": fixed}
            answerer.name_sources(known)
            state = {
                "sources": known,
                "ready": all(server.tried for server in servers),
                "servers": {server.name: asdict(server.offered) for server in servers},
            }
            with contextlib.suppress(OSError):  # nobody reads it any more
                print(json.dumps(state), flush=True)

        if places := settings.places():
            from pyaici.tools.servers import McpServer

            # what is sent to a URL as a header is no business of programs
            secret = {variable for place in places for _, variable in place.headers}
            others = {name: value for name, value in environment.items() if name not in secret}
            servers += [
                McpServer(place, desk, settings, environment if place.url else others, changed)
                for place in places
            ]
            works += [asyncio.create_task(server.run()) for server in servers]
        else:
            changed()
        works.append(asyncio.create_task(_until_closed(control, ended)))
        await ended.wait()
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)
        await desk.close()


async def _until_closed(control: Control, ended: asyncio.Event) -> None:
    while control.is_open():
        await asyncio.sleep(1.0)
    _log.warning("aicirt has ended, and with it the calls of tools")
    ended.set()


async def _main(wire: dict[str, Any]) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    call_at_end(wire["parent"], ended.set)
    if os.getppid() != wire["parent"]:
        return
    control = await _connect(Path(wire["socket"]), ended)
    if control is None:
        return
    try:
        await serve(control, ToolSettings.from_wire(wire["settings"]), wire["environment"], ended)
    finally:
        control.close()


def main() -> int:
    """Runs the process and returns the exit status."""
    wire = json.load(sys.stdin)
    settings = ToolSettings.from_wire(wire["settings"])
    logs.configure(settings.log_format, settings.log_level.upper())
    for name in _SILENT:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        asyncio.run(_main(wire))
    except (AiciError, OSError) as error:
        _log.error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # a thread may still be waiting for aicirt
