"""MCP servers: starts and watches them, and offers their tools as calls."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import anyio
import mcp_types as types
from mcp import Client, MCPError
from mcp.client.subscriptions import SubscriptionLost
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from aicirt.contract.errors import AiciError, counted
from aicirt.settings import MAX_CALL_NAME
from aicirt.system.terminal import printable
from pyaici.client.calls import CallError, plain
from pyaici.tools.desk import trace_parent
from pyaici.tools.results import mismatch, value_of
from pyaici.tools.settings import (
    MAX_DESCRIPTION,
    MAX_MESSAGE_BYTES,
    MAX_SCHEMA_BYTES,
    MAX_TOOLS,
    MAX_TOOLS_BYTES,
    START_SECONDS,
    McpPlace,
    OfferedTools,
    ToolSettings,
)
from pyaici.tools.transport import TOO_LONG, Program, connect

if TYPE_CHECKING:
    from pyaici.client.calls import Offer
    from pyaici.tools.desk import Desk

_log = logging.getLogger("aicirt.tools")
#: pauses before a server is started again, in seconds: they double until it has run for a while
_FIRST_PAUSE, _LAST_PAUSE, _RAN_WELL = 0.5, 60.0, 60.0
#: least seconds between two looks at a server's tools
_RENEW_SECONDS = 0.2
#: bytes of a list of tools, with what is left out of it; the rest is not read
_MAX_LIST_BYTES = 4 * MAX_MESSAGE_BYTES


class McpServer:
    """An MCP server, and the offer of its tools."""

    def __init__(
        self,
        place: McpPlace,
        desk: Desk,
        settings: ToolSettings,
        environment: dict[str, str],
        changed: Callable[[], None],
    ) -> None:
        """`environment`: of a program, or with the values of the headers for a URL.

        `changed` is called when the number of tools has changed, and after the first attempt to start."""
        self.name = place.name
        #: whether the first attempt to start it is over
        self.tried = False
        self._place, self._desk, self._settings = place, desk, settings
        self._environment = environment
        self._changed = changed
        self._client: Client | None = None
        self._problem = "it is starting"
        self._offer: Offer | None = None
        #: the calls of the offer
        self._calls: list[dict[str, Any]] = []
        #: by the name of a call: the schemas of its arguments and of its structured result
        self._schemas: dict[str, tuple[Any, Any]] = {}
        #: set when the tools may have changed, and when the connection is lost
        self._stale, self._lost = asyncio.Event(), asyncio.Event()

    @property
    def tools(self) -> int:
        """How many tools are offered."""
        return len(self._calls)

    @property
    def state(self) -> str:
        """Returns "starting", "running" or "failed"."""
        return "running" if self._client is not None else "failed" if self.tried else "starting"

    @property
    def offered(self) -> OfferedTools:
        """The tools, as the server is now."""
        return OfferedTools(self._calls, "" if self._client is not None else self._problem)

    async def run(self) -> None:
        """Keeps the server running until cancelled."""
        pause = _FIRST_PAUSE
        while True:
            since = time.monotonic()
            try:
                await self._serve()
            except Exception as error:
                self._problem = _cause(error)
            finally:
                self._client = None
            if time.monotonic() - since > _RAN_WELL:
                pause = _FIRST_PAUSE
            _log.warning(
                "the MCP server %s does not run: %s; the next attempt is in %g s. Check --mcp %s",
                self.name,
                printable(self._problem).replace("\n", " "),
                pause,
                self.name,
            )
            self._report()
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LAST_PAUSE)

    def _report(self) -> None:
        self.tried = True
        self._changed()

    async def _serve(self) -> None:
        """Connects, and offers tools until the connection is lost. Sets the problem, or raises."""
        program = Program(self._place.command, self._environment) if self._place.command else None
        self._lost = program.ended if program is not None else asyncio.Event()
        headers = self._place.header_values(self._environment)
        transport: Any = program or connect(self._place.url, START_SECONDS, headers)
        client = Client(transport, message_handler=self._heard, cache=None)
        async with contextlib.AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(START_SECONDS):
                    await stack.enter_async_context(client)
                    # ours has bounds; that of the package tries patterns of the server: they may take forever
                    client.session.validate_tool_result = _unchecked  # type: ignore[method-assign,assignment]
                    await self._renew(client)
            except Exception as error:
                raise AiciError(self._why(error, program)) from None
            self._client = client
            _log.info("the MCP server %s offers %s", self.name, counted(self.tools, "tool"))
            self._report()
            await self._watch(client)
        self._problem = (program.problem if program is not None else "") or "the connection was lost"

    @staticmethod
    def _why(error: Exception, program: Program | None) -> str:
        """Returns why a server has not started."""
        if program is None:
            return _cause(error)
        last = program.complaint.decode("utf-8", "replace").strip().rpartition("\n")[2]
        return f"{program.problem or _cause(error)}" + (
            f"; its last line on standard error: {last:.300}" if last else ""
        )

    async def _watch(self, client: Client) -> None:
        """Renews the offer when the tools change, until the connection is lost."""
        listening = None
        if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
            listening = asyncio.create_task(self._listen(client))
        waits = [asyncio.create_task(event.wait()) for event in (self._lost, self._stale)]
        try:
            while True:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                if self._lost.is_set():
                    return
                self._stale.clear()
                async with asyncio.timeout(START_SECONDS):
                    await self._renew(client)
                self._report()
                await asyncio.sleep(_RENEW_SECONDS)
                waits[1] = asyncio.create_task(self._stale.wait())
        finally:
            for task in (*waits, *([listening] if listening else ())):
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def _heard(self, message: Any) -> None:
        """Takes notice of changes (protocol versions with a handshake)."""
        if isinstance(message, types.ToolListChangedNotification):
            self._stale.set()

    async def _listen(self, client: Client) -> None:
        """Takes notice of changes (protocol versions with subscriptions)."""
        tools = client.server_capabilities.tools
        if tools is None or not tools.list_changed:
            return
        with contextlib.suppress(MCPError):  # not every server has subscriptions
            try:
                while True:
                    async with client.listen(tools_list_changed=True) as subscription:
                        async for _ in subscription:
                            self._stale.set()
                    await asyncio.sleep(_RENEW_SECONDS)
                    self._stale.set()
            except SubscriptionLost:
                self._lost.set()

    # -- tools ----------------------------------------------------------------------------------------

    async def _renew(self, client: Client) -> None:
        """Offers the tools that the server has now, if they are others than before."""
        tools = await _list(client)
        calls = self._describe(tools)
        results = {f"{self.name}.{tool.name}": tool.output_schema for tool in tools}
        self._schemas = {call["name"]: (call["schema"], results[call["name"]]) for call in calls}
        if calls == self._calls and self._offer is not None:
            return
        if self._offer is not None:
            self._desk.replace(self._offer)
            self._offer, self._calls = None, []
        if calls:
            self._offer = await self._desk.offer(calls, self.call)
        self._calls = calls

    def _describe(self, tools: list[types.Tool]) -> list[dict[str, Any]]:
        """Returns the calls for tools; warns about those that are left out."""
        calls: dict[str, dict[str, Any]] = {}
        left, size = 0, 0
        for tool in tools:
            name = f"{self.name}.{tool.name}"
            description = (tool.description or tool.title or "")[:MAX_DESCRIPTION]
            described = {"name": name, "description": description, "schema": tool.input_schema}
            try:
                described = plain(described)
            except ValueError:
                left += 1
                continue
            own = len(json.dumps(described["schema"]))
            size += own + len(json.dumps(description)) + len(name)
            if (
                len(name) > MAX_CALL_NAME
                or not tool.name.isprintable()
                or " " in tool.name
                or name in calls
                or own > MAX_SCHEMA_BYTES
                or size > MAX_TOOLS_BYTES
                or len(calls) >= MAX_TOOLS
            ):
                left += 1
                continue
            calls[name] = described
        if left:
            _log.warning(
                "%s of the MCP server %s left out: more than %d tools, %d bytes of a schema or %d of "
                "all, or a name or a schema that is not valid",
                counted(left, "tool"),
                self.name,
                MAX_TOOLS,
                MAX_SCHEMA_BYTES,
                MAX_TOOLS_BYTES,
            )
        return list(calls.values())

    async def call(self, name: str, arguments: Any) -> Any:
        """Calls a tool (`pyaici.tools.desk.Handler`)."""
        for_arguments, for_result = self._schemas.get(name) or (True, None)
        given = _written(name, arguments)
        if problem := await asyncio.to_thread(mismatch, given, for_arguments):
            raise CallError("arguments", problem)
        client = self._client
        if client is None:
            raise CallError("mcp", f"the MCP server {self.name} does not run at the moment: {self._problem}")
        try:
            result = await client.call_tool(name.partition(".")[2], given, meta=_traced())
        except MCPError as error:
            raise self._failed(error) from None
        except RuntimeError as error:  # a result of another kind
            raise CallError("mcp", f"the MCP server {self.name}: {error}") from None
        except (ValueError, anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
            problem = f"the MCP server {self.name} has broken the protocol: {type(error).__name__}"
            raise CallError("mcp", problem) from None
        value = value_of(result)
        if for_result is not None and result.structured_content is not None:
            if problem := await asyncio.to_thread(mismatch, value, for_result):
                raise CallError(
                    "mcp", f"the result of {name} does not match the tool's own schema: {problem}"
                )
        return value

    def _failed(self, error: MCPError) -> CallError:
        """Returns the error of a call for one of the protocol."""
        message = error.error.message
        if TOO_LONG in message or "event size" in message.lower():
            return CallError("too_long", f"the MCP server {self.name}: {TOO_LONG}")
        if error.code == types.INVALID_PARAMS:
            return CallError("arguments", message)
        if not self._place.command and (
            error.code == types.CONNECTION_CLOSED or "Session terminated" in message
        ):
            self._lost.set()
        return CallError("mcp", f"the MCP server {self.name}: {message}")


def _traced() -> types.RequestParamsMeta | None:
    """Returns the trace of a call, as MCP has it (SEP-414)."""
    trace = trace_parent.get()
    return cast(types.RequestParamsMeta, {"traceparent": trace}) if trace else None


async def _list(client: Client) -> list[types.Tool]:
    """Returns the tools of a server, somewhat more than the limits at most."""
    found: list[types.Tool] = []
    cursor, size = None, 0
    while len(found) <= MAX_TOOLS and size <= _MAX_LIST_BYTES:
        page = await client.list_tools(cursor=cursor)
        found += page.tools
        size += len(page.model_dump_json())
        cursor = page.next_cursor
        if not cursor or not page.tools:
            break
    kept = {tool.name for tool in found}
    for memory in ("_tool_output_schemas", "_x_mcp_header_maps"):  # pages of a list only add to them
        known = getattr(client.session, memory, {})
        for name in known.keys() - kept:
            del known[name]
    return found


async def _unchecked(*_: Any) -> None:
    """Checks nothing, in place of the package's check of a result."""


def _written(name: str, arguments: Any) -> dict[str, Any]:
    """Returns the arguments of a tool. Raises CallError if the package could not write them."""
    if not isinstance(arguments, dict):
        raise CallError("arguments", "the arguments of a tool are an object")
    params = {"name": name, "arguments": arguments}
    try:
        types.JSONRPCRequest(jsonrpc="2.0", id=0, method="tools/call", params=params).model_dump_json()
    except ValueError:
        problem = "the arguments have half a character (a lone surrogate), or too many lists in each other"
        raise CallError("arguments", problem) from None
    return arguments


def _cause(error: BaseException) -> str:
    """Returns what is at the bottom of an error, for the log."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return f"it has not answered within {START_SECONDS:g} s"
    if isinstance(error, FileNotFoundError):
        return f"there is no program {error.filename}"
    return f"{type(error).__name__}: {error}" if not isinstance(error, AiciError) else str(error)
