"""Settings of the tools process: the operator's servers and addresses, and limits."""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from aicirt.contract.errors import AiciError

#: bytes of a tool's result as JSON, and of an answer over HTTP: as many as aicirt passes on
MAX_RESULT_BYTES = 256 << 10
#: bytes of one message of an MCP server; a longer one is discarded while it comes
MAX_MESSAGE_BYTES = 1 << 20
#: tools of one MCP server; characters of a tool's description, and bytes of its schema as JSON
MAX_TOOLS, MAX_DESCRIPTION, MAX_SCHEMA_BYTES = 256, 4096, 32 << 10
#: bytes of all descriptions and schemas of a server
MAX_TOOLS_BYTES = 512 << 10
#: characters of the message of an error
MAX_ERROR = 2000
#: seconds in which a server must answer when it starts
START_SECONDS = 60.0

MCP_HELP = (
    "offer the tools of an MCP server to controllers, as calls NAME.tool: NAME=COMMAND starts a program, "
    "NAME=URL connects over HTTP; after the URL, HEADER=env:VARIABLE sends a header, e.g. authorization"
)
HTTP_HELP = (
    "let controllers make HTTP requests (the call http) to addresses that begin with this URL, e.g. "
    "https://example.org/api"
)
CALLS_HELP = "calls that each MCP server answers at the same time; further ones wait"
SECONDS_HELP = "time that a call of a tool may take, less than aicirt's limit call_seconds"

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")
_URL = re.compile("https?://", re.IGNORECASE)
_HEADER = re.compile(r"(?P<header>[A-Za-z][A-Za-z0-9-]{0,63})=env:(?P<variable>[A-Za-z_][A-Za-z0-9_]*)")
#: headers that the protocol or its transport has
_TAKEN = re.compile("accept.*|connection|content-.*|host|last-event-id|mcp-.*|te|transfer-.*", re.IGNORECASE)
#: variables that MCP servers do not get: settings of ours, and tokens for models and servers
_OURS = re.compile("AICI_.*|HF_.*TOKEN|HUGGING_FACE_HUB_TOKEN|HUGGINGFACE_TOKEN")


@dataclass(frozen=True, slots=True)
class McpPlace:
    """An MCP server of the operator: a command to start, or a URL."""

    name: str
    command: tuple[str, ...] = ()
    url: str = ""
    #: (header, environment variable with its value) of requests to the URL
    headers: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> McpPlace:
        """Reads NAME=COMMAND, or NAME=URL with headers. Raises AiciError."""
        name, equals, where = text.partition("=")
        if not equals or not _NAME.fullmatch(name) or name == "aici":
            raise AiciError(
                f"--mcp {name!r}: write NAME=COMMAND or NAME=URL; a name has 1 to 32 letters, digits, _ "
                "and -, begins with a letter, and is not aici"
            )
        if _URL.match(where):
            url, *headers = where.split()
            return cls(name, url=url, headers=tuple(_header(name, header) for header in headers))
        try:
            command = tuple(shlex.split(where))
        except ValueError as error:
            raise AiciError(f"--mcp {name}: the command cannot be read: {error}") from None
        if not command:
            raise AiciError(f"--mcp {name}: there is no command after the =")
        return cls(name, command)

    def header_values(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Returns the headers of requests. Raises AiciError if a variable is missing or no header's value."""
        found = {}
        for header, variable in self.headers:
            value = environment.get(variable)
            if value is None:
                raise AiciError(
                    f"--mcp {self.name}: the environment has no variable {variable} for the header {header}"
                )
            if not (value.isascii() and value.isprintable()):
                problem = "has other characters than printable ones of ASCII"
                raise AiciError(f"--mcp {self.name}: the variable {variable} {problem}")
            found[header] = value
        return found


def _header(server: str, text: str) -> tuple[str, str]:
    """Reads HEADER=env:VARIABLE. Raises AiciError, whose message has no value that was meant to be secret."""
    found = _HEADER.fullmatch(text)
    if found is None:
        raise AiciError(
            f"--mcp {server}: after the URL, write HEADER=env:VARIABLE, with the name of an environment "
            "variable that has the value of the header"
        )
    if _TAKEN.fullmatch(found["header"]):
        raise AiciError(f"--mcp {server}: the header {found['header']} belongs to the protocol; leave it out")
    return found["header"], found["variable"]


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """The tools of an MCP server.

    `calls`: the descriptions of the calls, with the server's name in front of theirs. `problem`: why the
    server does not run; empty if it does.
    """

    calls: Sequence[dict[str, Any]]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ToolSettings:
    """Settings of the tools process."""

    #: NAME=COMMAND_OR_URL
    mcp: tuple[str, ...] = ()
    #: URLs
    http_allow: tuple[str, ...] = ()
    #: calls at a time, of each server and over HTTP
    calls: int = 8
    seconds: float = 30.0
    log_format: str = "text"
    log_level: str = "info"

    @property
    def wanted(self) -> bool:
        """Whether there is anything to answer."""
        return bool(self.mcp or self.http_allow)

    def places(self) -> list[McpPlace]:
        """Returns the MCP servers. Raises AiciError for invalid ones, or two of one name."""
        places = [McpPlace.parse(text) for text in self.mcp]
        names = [place.name for place in places]
        if twice := {name for name in names if names.count(name) > 1}:
            raise AiciError(f"--mcp {min(twice)}: two MCP servers have this name; give each its own")
        return places

    def to_wire(self) -> dict[str, Any]:
        """Returns the settings for JSON."""
        return asdict(self)

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> ToolSettings:
        """Reads what `to_wire` returns."""
        known = cls(**{field.name: wire[field.name] for field in fields(cls)})
        return replace(known, mcp=tuple(known.mcp), http_allow=tuple(known.http_allow))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the tools to a parser, as `aici serve` has them."""
    group = parser.add_argument_group("calls of controllers")
    group.add_argument("--mcp", nargs="+", action="extend", default=[], metavar="NAME=SERVER", help=MCP_HELP)
    group.add_argument("--http-allow", nargs="+", action="extend", default=[], metavar="URL", help=HTTP_HELP)
    group.add_argument(
        "--tool-calls", type=int, default=8, metavar="N", help=f"{CALLS_HELP} (default: %(default)s)"
    )
    group.add_argument(
        "--tool-seconds", type=float, default=30.0, metavar="SECONDS", help=f"{SECONDS_HELP} (default: 30)"
    )


def server_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns the environment of MCP servers: the operator's, without our settings and tokens."""
    return {name: value for name, value in environment.items() if not _OURS.fullmatch(name)}


def check(settings: ToolSettings) -> Sequence[str]:
    """Returns the names of packages that the settings need. Raises AiciError for invalid settings."""
    from pyaici.tools.allowed import AllowList

    AllowList(settings.http_allow)
    for place in settings.places():
        place.header_values(server_environment())
    if settings.calls < 1 or not 0 < settings.seconds < float("inf"):
        raise AiciError("--tool-calls and --tool-seconds must be positive")
    return ("mcp",) if settings.places() else ("httpx2",)
