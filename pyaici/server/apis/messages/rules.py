"""Rules for requests beyond types: ranges, required fields, and fields that exclude each other."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from pyaici.engines.sampling import MAX_TOP_K
from pyaici.server.apis.messages.errors import invalid

if TYPE_CHECKING:
    from pyaici.server.apis.messages.requests import MessagesRequest


#: names of tools; they are written into tags unchanged
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
MAX_STOP_SEQUENCES = 8
#: most characters of a stop string, which is searched for with each token
MAX_STOP = 1024
MAX_TOOLS = 128
#: most characters of all tools' schemas in JSON: grammars grow with them, some quadratically
MAX_SCHEMAS = 128 << 10
MIN_THINKING_BUDGET = 1024


def check(request: MessagesRequest) -> None:
    """Raises MessagesError for the first broken rule."""
    if not request.model:
        raise invalid("model is required", "model")
    if not request.messages:
        raise invalid("messages cannot be empty")
    turns = [(i, message) for i, message in enumerate(request.messages) if message.role != "system"]
    if not turns or turns[0][1].role != "user":
        raise invalid("first message must have role 'user'", f"messages.{turns[0][0] if turns else 0}.role")
    for i, message in enumerate(request.messages):
        if message.role == "system" and any(block.type != "text" for block in message.blocks):
            raise invalid("a message of the role system has texts alone", f"messages.{i}.content")
    _check_sampling(request)
    _check_thinking(request)
    _check_tools(request)
    _check_choice(request)
    _check_schemas(request)
    if request.bnf_schema is not None and not request.bnf_schema.strip():
        raise invalid("bnf_schema cannot be empty", "bnf_schema")


def _check_sampling(request: MessagesRequest) -> None:
    if request.max_tokens <= 0:
        raise invalid("max_tokens must be greater than 0", "max_tokens")
    if len(request.stop_sequences) > MAX_STOP_SEQUENCES:
        raise invalid(f"stop_sequences cannot have more than {MAX_STOP_SEQUENCES} items", "stop_sequences")
    for i, text in enumerate(request.stop_sequences):
        if not text:
            raise invalid("stop_sequences cannot contain empty strings", f"stop_sequences.{i}")
        if len(text) > MAX_STOP:
            raise invalid(f"a stop sequence has at most {MAX_STOP} characters", f"stop_sequences.{i}")
    if not 0 <= request.temperature <= 2:
        raise invalid("temperature must be between 0.0 and 2.0", "temperature")
    if not 0 <= request.top_p <= 1:
        raise invalid("top_p must be between 0.0 and 1.0", "top_p")
    if request.top_k <= 0:
        raise invalid("top_k must be greater than 0", "top_k")
    if request.top_k > MAX_TOP_K:
        raise invalid(f"top_k must be at most {MAX_TOP_K}", "top_k")


def _check_thinking(request: MessagesRequest) -> None:
    if request.thinking.type != "enabled":
        return
    if request.thinking.budget_tokens < MIN_THINKING_BUDGET:
        raise invalid(f"budget_tokens must be at least {MIN_THINKING_BUDGET}", "thinking.budget_tokens")
    if request.thinking.budget_tokens >= request.max_tokens:
        raise invalid("budget_tokens must be less than max_tokens", "thinking.budget_tokens")


def _check_tools(request: MessagesRequest) -> None:
    if len(request.tools) > MAX_TOOLS:
        raise invalid(f"there are {len(request.tools)} tools; at most {MAX_TOOLS} are allowed", "tools")
    size = sum(len(json.dumps(tool.input_schema)) for tool in request.tools)
    if size > MAX_SCHEMAS:
        raise invalid(
            f"the schemas of all tools have {size} characters; at most {MAX_SCHEMAS} are allowed", "tools"
        )
    seen: set[str] = set()
    for i, tool in enumerate(request.tools):
        if not TOOL_NAME.fullmatch(tool.name):
            raise invalid(
                f"the tool name {tool.name!r} is invalid: use 1 to 64 letters, digits, _ or -",
                f"tools.{i}.name",
            )
        if tool.name in seen:
            raise invalid(f"two tools have the name {tool.name}", f"tools.{i}.name")
        seen.add(tool.name)
        kinds = tool.input_schema.get("type", "object")
        if kinds != "object" and not (isinstance(kinds, list) and "object" in kinds):
            raise invalid(
                f"the arguments of {tool.name} must be an object, not {kinds}", f"tools.{i}.input_schema.type"
            )


def _check_schemas(request: MessagesRequest) -> None:
    """Checks that fields that need a level of checks have it."""
    needs = [f"tools.{i}.strict" for i, tool in enumerate(request.tools) if tool.strict]
    if request.output_schema is not None:
        needs.append("output_config.format")
    if needs and request.bnf_validation not in (None, "schema_aware"):
        raise invalid(f'{needs[0]} needs bnf_validation "schema_aware"', needs[0])
    if needs and request.bnf_schema is not None:
        raise invalid(f"{needs[0]} cannot be combined with bnf_schema: remove one of them", needs[0])
    if not request.strict_seed_grammar:
        return
    if request.bnf_validation != "structural":
        raise invalid('strict_seed_grammar needs bnf_validation "structural"', "strict_seed_grammar")
    if request.tool_choice.type != "auto" or request.tool_choice.disable_parallel_tool_use:
        raise invalid("the grammar of strict_seed_grammar always allows calls, and several", "tool_choice")


def _check_choice(request: MessagesRequest) -> None:
    choice = request.tool_choice
    if choice.type == "tool" and choice.name is None:
        raise invalid('tool_choice of type "tool" needs the name of a tool', "tool_choice.name")
    if not request.must_call:
        return
    if not request.tools:
        raise invalid("tool_choice requires a call, but there are no tools", "tool_choice")
    if not request.callable_tools:
        raise invalid(f"tool_choice names {choice.name}, which is not one of the tools", "tool_choice.name")
    if request.bnf_validation == "none":
        raise invalid(
            'a call can be enforced only with bnf_validation "structural" or "schema_aware"', "tool_choice"
        )
    if request.bnf_validation is None and request.bnf_schema is not None:
        raise invalid("a call cannot be enforced together with bnf_schema: remove one of them", "tool_choice")
