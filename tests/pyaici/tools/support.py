"""Scripts on a tiny model that make calls, and the tools process that answers them."""

from __future__ import annotations

import json
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab.system.waiting import PATIENCE, wait_until
from pyaici.engines.batching.engine import BatchingEngine
from pyaici.engines.engine import GenerationResult, Request
from pyaici.tools.process import ToolsProcess
from pyaici.tools.settings import ToolSettings
from tests.pyaici.engines.batching.support import BOS

CALCULATOR = Path(__file__).with_name("calculator.py")
#: makes the calls of the list CALLS one after the other, and prints what comes of each as a line of JSON
_SCRIPT = """\
import json
from aici import *
async def main():
    for name, arguments in CALLS:
        try:
            value = await call(name, arguments)
            long = isinstance(value, str) and len(value) > 1000  # a log has less room
            print(json.dumps({"length": len(value)} if long else {"value": value}))
        except CallError as error:
            print(json.dumps({"code": error.code, "message": str(error)}))
    await force("done")
"""


class Caller:
    """Runs scripts that make calls."""

    def __init__(self, engine: BatchingEngine, socket: Path) -> None:
        self.engine, self.socket = engine, socket

    def play(self, source: str) -> GenerationResult:
        """Runs a script; returns the result of its only sequence."""
        arg = json.dumps({"script": source, "name": "script.py"})
        number = self.engine.add(
            Request([BOS, 72, 101], controller="pyctrl", arg=arg, calls={}, max_tokens=100)
        )
        self.engine.run()
        (result,) = self.engine.results(number)
        return result

    def __call__(self, *calls: tuple[str, Any]) -> list[dict[str, Any]]:
        """Makes calls one after the other; returns the value of each, or its code and message."""
        result = self.play(f"CALLS = {calls!r}\n{_SCRIPT}")
        assert result.error is None, result.error
        return [json.loads(line) for line in result.log.splitlines()]

    @contextmanager
    def tools(self, *mcp: str, **settings: Any) -> Iterator[ToolsProcess]:
        """Runs the tools process until the end of the block; returns once it has tried all servers."""
        with ToolsProcess(self.socket, ToolSettings(mcp, **settings)) as process:
            assert process.wait_until_ready(PATIENCE)
            yield process


def server(name: str, program: Path = CALCULATOR, *arguments: str) -> str:
    """Returns the setting of an MCP server of ours."""
    return f"{name}={shlex.join([sys.executable, str(program), *arguments])}"


@contextmanager
def over_http() -> Iterator[str]:
    """Runs the calculator over HTTP; yields its setting."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, str(CALCULATOR), str(port)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0)
            yield f"calc=http://127.0.0.1:{port}/mcp"
        finally:
            process.kill()
