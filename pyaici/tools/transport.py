"""Connections to MCP servers, which are programs or URLs, with limits on what they send."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any

import anyio
import httpx2
import mcp_types as types
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from aicirt.sandbox import die_with
from aicirt.system.processes import Child
from pyaici.tools.settings import MAX_MESSAGE_BYTES

#: errors of a message that was too long, and of an invalid one
TOO_LONG = "the message of the server is too long"
_UNREADABLE = "its answer cannot be read"
#: lines that are no messages, after which a server counts as broken
_MAX_NOISE = 100
#: requests of a server whose answers it has not read, after which it counts as broken
_MAX_OWED = 100
#: seconds that a server has to end after its input, and after SIGTERM
_END_SECONDS = 1.0
#: bytes of what a server writes to standard error, which are kept until it has started
_MAX_COMPLAINT = 4096
#: the number of the request that a message answers, at its beginning
_ANSWERED = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,18})\s*,')
_HEAD = 128


class Program:
    """An MCP server as a program of ours (`mcp.client.Client` uses it as a transport)."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._command, self._environment = command, environment
        #: set when the program has ended, or has to be ended
        self.ended = asyncio.Event()
        #: why
        self.problem = ""
        #: the last thing that it has written to standard error
        self.complaint = b""
        self._tasks: list[asyncio.Task[None]] = []
        #: answers to requests of the server that are to be written
        self._owed = 0
        #: not asyncio's, which waits for it at once: then its number may be another group's when we signal it
        self._process: subprocess.Popen[bytes] | None = None
        #: set when the process has ended, with this exit status; only `_end_process` waits for it
        self._gone, self._status = asyncio.Event(), 0
        self._pipes: list[asyncio.WriteTransport | asyncio.ReadTransport] = []

    async def __aenter__(self) -> tuple[Any, Any]:
        """Starts the program. Raises OSError."""
        pipe = subprocess.PIPE
        self._process = process = subprocess.Popen(
            self._command,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            env=self._environment,
            start_new_session=True,  # so that what it starts ends with it
            preexec_fn=partial(die_with, os.getpid()),  # noqa: PLW1509  # two system calls, as with asyncio
        )
        to_us, self._incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        self._outgoing, from_us = anyio.create_memory_object_stream[SessionMessage](0)
        self._child = Child(process.pid)
        asyncio.get_running_loop().add_reader(self._child.pidfd.fd, self._note_end)
        works = (self._read_messages(process, to_us), self._write(process, from_us), self._listen(process))
        self._tasks = [asyncio.create_task(work) for work in works]
        for task in self._tasks:
            task.add_done_callback(self._look_at)
        return self._incoming, self._outgoing

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the program and all that it has started."""
        ending = asyncio.create_task(self._end_process())
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            await ending
            raise

    async def _end_process(self) -> None:
        process, child = self._process, self._child
        assert process is not None
        self._tasks[1].cancel()  # and so close its input
        for number in (None, signal.SIGTERM, signal.SIGKILL):
            if number is not None:
                _signal_group(process.pid, number)
            if await self._has_ended():
                break
        _signal_group(process.pid, signal.SIGKILL)  # what it has left behind
        await self._gone.wait()
        process.returncode = child.wait_for_exit()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for pipe in self._pipes:  # else one that another process holds stays open
            pipe.close()
            if isinstance(pipe, asyncio.WriteTransport) and pipe.get_write_buffer_size():
                pipe.abort()
        self._incoming.close()
        self._outgoing.close()

    def _note_end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._child.pidfd.fd)
        end = os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOWAIT)
        assert end is not None
        self._status = end.si_status if end.si_code == os.CLD_EXITED else -end.si_status
        self._gone.set()

    async def _has_ended(self) -> bool:
        """Waits a moment for the end of the process; returns whether it has come."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                await self._gone.wait()
        return self._gone.is_set()

    async def _reader(self, pipe: Any) -> asyncio.StreamReader:
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        self._pipes += (await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe))[:1]
        return reader

    def _stop(self, problem: str) -> None:
        self.problem = self.problem or problem
        self.ended.set()

    def _look_at(self, task: asyncio.Task[None]) -> None:
        """Ends the program if a task has failed: nothing else would tell."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._stop(f"talking to it has failed ({type(error).__name__})")

    async def _read_messages(self, process: subprocess.Popen[bytes], to_us: Any) -> None:
        output, noise = await self._reader(process.stdout), 0
        async with to_us:
            async for line, whole in _lines(output):
                message = _message(line) if whole else _failure(line, TOO_LONG)
                if message is not None:
                    self._owed += isinstance(message, types.JSONRPCRequest)
                    if self._owed > _MAX_OWED:
                        self._stop("it sends requests, and does not read the answers")
                        return
                    try:
                        await to_us.send(SessionMessage(message))
                    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                        return
                elif line.strip():
                    noise += 1 if whole else _MAX_NOISE
                    if noise > _MAX_NOISE:
                        self._stop("it writes to its standard output what is no message of MCP")
                        return
        ended = await self._has_ended()
        self._stop(
            f"it has ended (exit status {self._status})" if ended else "it has closed its standard output"
        )

    async def _write(self, process: subprocess.Popen[bytes], from_us: Any) -> None:
        assert process.stdin is not None
        loop = asyncio.get_running_loop()
        protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())  # it says when to wait
        transport, _ = await loop.connect_write_pipe(lambda: protocol, process.stdin)
        self._pipes.append(transport)
        writer = asyncio.StreamWriter(transport, protocol, None, loop)
        async with from_us:
            with contextlib.closing(transport):
                async for sent in from_us:
                    text = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
                    writer.write(text.encode() + b"\n")
                    try:
                        await writer.drain()
                    except OSError:
                        return  # it has ended, which its output tells
                    self._owed -= isinstance(sent.message, types.JSONRPCResponse | types.JSONRPCError)

    async def _listen(self, process: subprocess.Popen[bytes]) -> None:
        errors = await self._reader(process.stderr)
        while part := await errors.read(1 << 16):
            self.complaint = (self.complaint + part)[-_MAX_COMPLAINT:]


def _signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[tuple[bytes, bool]]:
    """Yields lines, and whether they are whole: of one that is too long, only the beginning."""
    line, discarding = bytearray(), False
    while part := await stream.read(1 << 16):
        *ends, rest = part.split(b"\n")
        for end in ends:
            if not discarding:
                line += end
            yield bytes(line), not discarding
            line, discarding = bytearray(), False
        if not discarding:
            line += rest
        if len(line) > MAX_MESSAGE_BYTES:
            line, discarding = line[:_HEAD], True


def _message(line: bytes) -> Any:
    """Returns the message in a line, an error in place of a broken answer, or None."""
    try:
        return types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        return _failure(line, _UNREADABLE)


def _failure(head: bytes, problem: str) -> Any:
    """Returns an error in place of an answer with this beginning; None if it is not known to be one."""
    if (found := _ANSWERED.match(head)) is None:
        return None
    error = types.ErrorData(code=types.INTERNAL_ERROR, message=problem)
    return types.JSONRPCError(jsonrpc="2.0", id=int(found[1]), error=error)


# -- URLs -----------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def connect(url: str, seconds: float, headers: Mapping[str, str]) -> AsyncIterator[tuple[Any, Any]]:
    """Connects to an MCP server over HTTP (`mcp.client.Client` uses it as a transport).

    `headers`: of each request; redirects are not followed, so no other server gets them. `seconds`: without
    any byte of an answer. A stream of events may be silent for as long as it likes.
    """
    timeout = httpx2.Timeout(seconds, read=None)
    transport = _Bounded(httpx2.AsyncHTTPTransport(trust_env=False))
    client = httpx2.AsyncClient(
        transport=transport, timeout=timeout, trust_env=False, headers=headers, follow_redirects=False
    )
    async with client:
        async with streamable_http_client(
            url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES
        ) as streams:
            yield streams


class _Bounded(httpx2.AsyncBaseTransport):
    """Bounds answers other than streams of events, whose events have a bound of their own."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.headers["accept-encoding"] = "identity"
        response = await self._inner.handle_async_request(request)
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _BoundedStream(response.stream)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for part in self._inner:
            size += len(part)
            if size > MAX_MESSAGE_BYTES:
                raise httpx2.StreamError(TOO_LONG)
            yield part

    async def aclose(self) -> None:
        await self._inner.aclose()
