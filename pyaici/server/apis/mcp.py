"""Tools of the type `mcp` in requests: those of an MCP server of the operator, which a script calls."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from aicirt.contract.modules import interpreter_argument
from pyaici.server.answers.formats import Function
from pyaici.server.answers.tools import ServerTool
from pyaici.server.apis.controllers import ScriptBody, script_call
from pyaici.server.apis.fields import MAX_ARG, Part, Refused
from pyaici.server.http.errors import bad_request, busy
from pyaici.server.service import ControllerCall
from pyaici.tokens.turns import Role, Turns

if TYPE_CHECKING:
    from pyaici.server.models import ServedModel
    from pyaici.tools.settings import OfferedTools

#: most calls of tools in one request, and what a request has by default
MAX_TOOL_CALLS = 64
#: most tools of a request that the model is told of
MAX_REQUEST_TOOLS = 128
#: the script of such requests; docs/tools.md describes how to replace it
SCRIPT = Path(__file__).parents[1] / "scripts" / "tools.py"
#: names that every format of calls can have
_NAME = re.compile(r"[A-Za-z0-9_./-]{1,128}")
_OPERATOR = Refused("name one of the operator's servers (server_label): only these are called", ())
_REFUSED = {
    **dict.fromkeys(("server_url", "connector_id", "tunnel_id"), _OPERATOR),
    **dict.fromkeys(("authorization", "headers"), Refused("the operator sets what a server needs", ())),
    "defer_loading": Refused("name the tools in allowed_tools", (False,)),
    "allowed_callers": Refused("the model calls the tools", (["direct"],)),
}


def tool_kind(body: Any) -> str:
    """Returns the tag of a tool in a union of McpTool and functions (pydantic's Discriminator)."""
    kind = body.get("type") if isinstance(body, dict) else getattr(body, "type", None)
    return "an MCP server" if kind == "mcp" else "a function"


class ToolNames(Part):
    """Some tools of a server."""

    refused: ClassVar = {"read_only": Refused("name the tools in tool_names", ())}

    tool_names: Annotated[list[str], Field(max_length=256, fail_fast=True)]


class McpTool(Part):
    """The tools of an MCP server of the operator."""

    refused: ClassVar = _REFUSED

    type: Literal["mcp"]
    server_label: str = Field(min_length=1, max_length=64)
    allowed_tools: Annotated[list[str], Field(max_length=256, fail_fast=True)] | ToolNames | None = None
    require_approval: Any = Field(
        None, description='"never", the default: the operator has approved the tools'
    )
    server_description: str | None = None

    @field_validator("require_approval")
    @classmethod
    def _is_never(cls, approval: Any) -> Any:
        if approval not in (None, "never"):
            raise ValueError(
                'no call waits for an approval: send "never", and name in allowed_tools what may be called'
            )
        return approval

    @property
    def names(self) -> Collection[str] | None:
        """The names of the tools that may be called; None = all."""
        allowed = self.allowed_tools
        return allowed.tool_names if isinstance(allowed, ToolNames) else allowed

    def echo(self) -> dict[str, Any]:
        """Returns the tool as responses repeat it."""
        return {
            "type": "mcp",
            "server_label": self.server_label,
            "allowed_tools": None if self.names is None else list(self.names),
            "require_approval": "never",
            "server_description": self.server_description,
        }


class McpChoice(Part):
    """A tool of an MCP server that the answer must call, or any of its tools."""

    type: Literal["mcp"]
    server_label: str
    name: str | None = None

    def takes(self, tool: ServerTool | None) -> bool:
        """Returns whether this is the tool, or one of them; None: a function of the client."""
        return tool is not None and tool.server == self.server_label and self.name in (None, tool.tool)


def offered_calls(tool: McpTool, servers: Mapping[str, OfferedTools], place: str) -> list[dict[str, Any]]:
    """Returns the descriptions of a server's tools that may be called, with their own names.

    `place`: of the tool in the request. Raises ApiError for an unknown server or tool, or if it does not run.
    """
    label, allowed = tool.server_label, tool.names
    if label not in servers:
        there = ", ".join(sorted(servers)) or "none (aici serve --mcp)"
        raise bad_request(
            f"there is no MCP server {label!r}; the servers are: {there}", f"{place}.server_label"
        )
    calls = {str(call["name"]).partition(".")[2]: call for call in servers[label].calls}
    if not calls and servers[label].problem:
        raise busy(f"the MCP server {label} does not run at the moment: try again later", 5)
    known = {name: call for name, call in calls.items() if _NAME.fullmatch(name)}
    for name in allowed or ():
        if name not in known:
            raise bad_request(
                f"the MCP server {label} has no tool {name[:128]!r}; its tools: {', '.join(sorted(known))}",
                f"{place}.allowed_tools",
            )
    return [{**call, "name": name} for name, call in known.items() if allowed is None or name in allowed]


def server_functions(
    tools: Sequence[McpTool], servers: Mapping[str, OfferedTools], others: Collection[str]
) -> list[tuple[Function, ServerTool]]:
    """Returns the tools of servers as functions that the model may call. Raises ApiError.

    `others`: names of the request's functions. A tool that shares its name has that of its server in front.
    """
    labels = [tool.server_label for tool in tools]
    if twice := {label for label in labels if labels.count(label) > 1}:
        raise bad_request(f"two tools of the type mcp have the server_label {min(twice)!r}", "tools")
    calls = [
        (tool.server_label, call)
        for number, tool in enumerate(tools)
        for call in offered_calls(tool, servers, f"tools.{number}")
    ]
    if len(calls) + len(others) > MAX_REQUEST_TOOLS:
        raise bad_request(
            f"the request has {len(calls) + len(others)} tools; the limit is {MAX_REQUEST_TOOLS}: name those "
            "that are needed in allowed_tools",
            "tools",
        )
    names = [*others, *(call["name"] for _, call in calls)]
    found = []
    for label, call in calls:
        own = call["name"]
        name = own if names.count(own) == 1 else f"{label}.{own}"
        found.append(
            (
                Function(name, call["schema"] or None, call["description"] or None),
                ServerTool(label, own, name),
            )
        )
    return found


@dataclass(frozen=True, slots=True)
class ResultTurns:
    """How a model's chat template takes the results of tools.

    `role`: of the messages with results; `several`: whether several may follow each other; `opening`: what
    the template writes after them, at the beginning of a new answer.
    """

    role: Literal["tool", "user"]
    several: bool
    opening: str


def result_turns(model: ServedModel, *, writes_results: bool) -> ResultTurns:
    """Returns how results are appended. `writes_results`: whether the template has messages with results.

    Raises ApiError if a chat cannot grow inside a request.
    """
    turns = (
        Turns.from_bytes(model.vocabulary.turns) if model.vocabulary.turns else Turns(problem="it has none")
    )
    pieces = turns.pieces
    role = Role.TOOL if writes_results and (Role.ASSISTANT, Role.TOOL) in pieces else Role.USER
    if (Role.ASSISTANT, role) not in pieces or (role, Role.ASSISTANT) not in pieces:
        problem = turns.problem or "the template has no place for another message of the user"
        raise bad_request(
            f"the server cannot call tools for this model, whose chats cannot grow in a request: {problem}",
            "tools",
        )
    items = [item for item in pieces[role, Role.ASSISTANT] if item is not None]
    texts = [
        model.token_text(item) if isinstance(item, int) else item.decode("utf-8", "replace") for item in items
    ]
    several = role is Role.USER or (role, role) in pieces
    return ResultTurns("tool" if role is Role.TOOL else "user", several, "".join(texts))


def tool_script(argument: Mapping[str, Any], script: ScriptBody | None) -> ControllerCall:
    """Returns the controller of a request in which the model calls tools. Raises ApiError.

    `script`: the request's own, which replaces ours; its argument is the member `arg` of `argument`.
    """
    if script is not None:
        return script_call(script.model_copy(update={"arg": {**argument, "arg": script.arg}}))
    written = interpreter_argument(SCRIPT.read_text(), SCRIPT.name, argument)
    if len(written) > MAX_ARG:
        raise bad_request("the schemas of the tools are too long: name fewer in allowed_tools", "tools")
    hint = "\nname in allowed_tools the tools that the model needs, without this one"
    return ControllerCall("pyctrl", written, "tools", "tools", hint)
