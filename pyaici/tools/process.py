"""Starts the tools process beside a program of the operator, and replaces it when it dies."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from aicirt.contract.errors import AiciError
from aicirt.system.files import Closing
from aicirt.system.processes import child_environment
from pyaici.toolchain.sdk import install_command
from pyaici.tools.settings import START_SECONDS, OfferedTools, ToolSettings, check, server_environment

_log = logging.getLogger("aicirt.tools")
#: pauses before the process is started again, in seconds, as for an MCP server
_FIRST_PAUSE, _LAST_PAUSE, _RAN_WELL = 0.5, 60.0, 60.0
#: seconds for an orderly end, with all MCP servers
_END_SECONDS = 5.0


class ToolsProcess(Closing):
    """The tools process of a program; it ends with the program."""

    def __init__(self, socket: Path, settings: ToolSettings) -> None:
        """Starts the process. Raises AiciError for invalid settings, or if packages are missing.

        `socket`: of aicirt, which may start a little later.
        """
        missing = [name for name in check(settings) if importlib.util.find_spec(name) is None]
        if missing:
            raise AiciError(
                f"tools need more packages: {install_command('tools')} (missing: {', '.join(missing)})"
            )
        self._wire = {
            "socket": str(socket),
            "parent": os.getpid(),
            "settings": settings.to_wire(),
            "environment": server_environment(),
        }
        #: the state of each MCP server and of `http`: `state` (starting, running or failed) and `tools`
        self.sources: dict[str, dict[str, Any]] = {
            place.name: {"state": "starting", "tools": 0} for place in settings.places()
        }
        #: the calls of each MCP server
        self.servers: Mapping[str, OfferedTools] = {}
        self._ready = threading.Event()
        self._closing = threading.Event()
        #: guards the start of a process against `close`
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._watch, name="tools", daemon=True)
        self._thread.start()

    @property
    def tools(self) -> int:
        """How many calls are offered."""
        return sum(int(source["tools"]) for source in self.sources.values())

    def summary(self) -> dict[str, Any]:
        """Returns how many calls are offered, and where they come from, for operators."""
        return {"calls": self.tools, "sources": self.sources}

    def wait_until_ready(self, seconds: float = START_SECONDS) -> bool:
        """Waits until all MCP servers have been tried; returns False if that takes longer."""
        if self._ready.wait(seconds):
            return True
        _log.warning(
            "not all tools are there after %g s; the others follow when their servers answer (--mcp)", seconds
        )
        return False

    def _watch(self) -> None:
        pause = _FIRST_PAUSE
        while not self._closing.is_set():
            since = time.monotonic()
            try:
                status = self._run_process()
            except OSError as error:
                status = error.strerror or str(error)
            self.sources = {name: {"state": "failed", "tools": 0} for name in self.sources}
            self.servers = {}
            if time.monotonic() - since > _RAN_WELL:
                pause = _FIRST_PAUSE
            if not self._closing.is_set():
                _log.warning("the tools process has ended (%s); another one starts in %g s", status, pause)
                self._closing.wait(pause)
                pause = min(2 * pause, _LAST_PAUSE)

    def _run_process(self) -> str:
        """Runs the process until it ends; returns its status."""
        command = [sys.executable, "-m", "pyaici.tools"]
        with self._lock:
            if self._closing.is_set():
                return ""
            self._process = process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=child_environment(),
                start_new_session=True,
            )
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(OSError):  # it has ended already
            with process.stdin:
                process.stdin.write(json.dumps(self._wire).encode())
        with process.stdout:
            for line in process.stdout:
                self._note(line)
        return f"status {process.wait()}"

    def _note(self, line: bytes) -> None:
        try:
            state: dict[str, Any] = json.loads(line)
        except ValueError:
            return
        self.sources = state["sources"]
        self.servers = {name: OfferedTools(**found) for name, found in state["servers"].items()}
        if state["ready"]:
            self._ready.set()

    def close(self) -> None:
        """Ends the process and its MCP servers."""
        self._closing.set()
        with self._lock:
            process = self._process
        if process is not None:
            process.terminate()
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
        self._thread.join(_END_SECONDS)


def beside(args: argparse.Namespace) -> AbstractContextManager[Any]:
    """Runs the tools that the options of `aici runtime` name, if any."""
    limits = args.tool_calls, args.tool_seconds
    settings = ToolSettings(tuple(args.mcp), tuple(args.http_allow), *limits, args.log_format, args.log_level)
    return ToolsProcess(args.socket, settings) if settings.wanted else contextlib.nullcontext()
