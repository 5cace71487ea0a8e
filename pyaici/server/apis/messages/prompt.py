"""The prompt of a request: in the format of ai00, or as a chat for the model's own template."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pyaici.server.answers.arguments import read_json
from pyaici.server.answers.plan import THINK
from pyaici.server.apis.messages.plan import level_of, terminators, written_calls
from pyaici.server.apis.messages.requests import (
    MessagesRequest,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ThinkingEnabled,
    Tool,
    ToolResultBlock,
    ToolUseBlock,
)

_HOW_TO_CALL = """\
To call a function, use this format:
<ai00:function_calls>
  <invoke name="function_name">
    <parameter name="param">value</parameter>
  </invoke>
</ai00:function_calls>"""

#: words added to the prompt, by the budget of thinking: up to so many tokens
_EFFORTS = ((4095, " think a bit"), (16383, " think"))
_MAX_EFFORT = " think a lot"
#: JSON on several lines may be so many times as long as on one; usual JSON is two to eight times as long
_MAX_GROWTH = 16


@dataclass(slots=True)
class _Turn:
    """Consecutive texts of one speaker, each on separate lines."""

    role: str
    parts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n".join(self.parts)


def ai00_prompt(request: MessagesRequest) -> str:
    """Returns the text that a model of ai00 continues.

    Results of calls belong to the turn that made the calls. The assistant's last turn stays open, so the
    model continues an answer that the request begins.
    """
    turns = _turns(request, results_in="assistant")
    if turns[-1].role != "assistant":
        turns.append(_Turn("assistant"))
    if isinstance(request.thinking, ThinkingEnabled):
        _last(turns, "user").parts[-1] += _effort(request.thinking.budget_tokens)
    out = ""
    if system := _system(request, []):
        out += f"<ai00:system>\n{system}\n</ai00:system>\n\n"
    for turn in turns[:-1]:
        out += f"<ai00:{turn.role}>\n{turn.text}\n</ai00:{turn.role}>\n\n"
    out += f"<ai00:assistant>\n{turns[-1].text}".rstrip() + "\n"
    if request.thinks:
        out += THINK
    return out.rstrip()


def chat_prompt(request: MessagesRequest, *, reasons: bool = False) -> list[dict[str, str]]:
    """Returns messages for a chat template, each with role and content; user and assistant alternate.

    `reasons`: the template has the marks of thinking, so the model need not be asked to think.

    Such a model knows none of the markers, so the system message explains them. Results of calls are in turns
    of the user.
    """
    turns = _turns(request, results_in="user")
    hints = []
    if request.thinks and not reasons:
        hints.append("Before you answer, think, between <think> and </think>.")
    if request.output_schema is not None:
        hints.append(f"Answer in JSON that matches this schema:\n{_pretty(request.output_schema)}")
    elif level_of(request) != "none" and not request.must_call:
        hints.append(f"End an answer in text with {terminators(request)[0]}")
    messages = [{"role": turn.role, "content": turn.text} for turn in turns]
    system = _system(request, hints)
    return [{"role": "system", "content": system}, *messages] if system else messages


def _system(request: MessagesRequest, hints: Iterable[str]) -> str:
    parts = [
        request.system_text,
        *([_tools(request.callable_tools)] if request.callable_tools else []),
        *hints,
    ]
    return "\n\n".join(part for part in parts if part)


def _tools(tools: Iterable[Tool]) -> str:
    described = "".join(
        f'  <tool name="{tool.name}">\n{textwrap.indent(_description(tool), "    ")}\n  </tool>\n'
        for tool in tools
    )
    return f"<ai00:available_tools>\n{described}</ai00:available_tools>\n\n{_HOW_TO_CALL}"


def _description(tool: Tool) -> str:
    optional = {"description": tool.description} if tool.description is not None else {}
    return _pretty({**optional, "input_schema": tool.input_schema, "name": tool.name})


def _turns(request: MessagesRequest, *, results_in: str) -> list[_Turn]:
    """Returns the turns: consecutive messages of one role are one turn. Earlier thinking is left out.

    If `results_in` is the assistant, results are in the same turn as the calls before them, and instructions
    between turns are a turn of the system. Else the user has both, as chat templates know no more.
    """
    form = written_calls(request)
    turns: list[_Turn] = []
    for message in request.messages:
        if message.role == "system":
            if turns and results_in == "assistant":
                turns.append(_Turn("system", [message.text]))
            elif turns:
                if turns[-1].role != "user":
                    turns.append(_Turn("user"))
                turns[-1].parts.append(f"<system>\n{message.text}\n</system>")
            continue
        blocks = [
            block for block in message.blocks if not isinstance(block, ThinkingBlock | RedactedThinkingBlock)
        ]
        only_results = bool(blocks) and all(isinstance(block, ToolResultBlock) for block in blocks)
        role = results_in if only_results and turns else message.role
        if not turns or turns[-1].role != role:
            turns.append(_Turn(role))
        parts = turns[-1].parts
        calls: list[ToolUseBlock] = []
        results: list[ToolResultBlock] = []
        for block in [*blocks, None]:
            # consecutive calls are in one element, and so are consecutive results
            if calls and not isinstance(block, ToolUseBlock):
                parts.append(form.write([(call.name, call.input) for call in calls]))
                calls = []
            if results and not isinstance(block, ToolResultBlock):
                parts.append(_results_text(results))
                results = []
            if isinstance(block, TextBlock):
                parts.append(block.text)
            elif isinstance(block, ToolUseBlock):
                calls.append(block)
            elif isinstance(block, ToolResultBlock):
                results.append(block)
    for turn in turns:
        turn.parts = turn.parts or [""]
    return turns


def _last(turns: list[_Turn], role: str) -> _Turn:
    return next(turn for turn in reversed(turns) if turn.role == role)


def _effort(budget: int) -> str:
    return next((words for most, words in _EFFORTS if budget <= most), _MAX_EFFORT)


def _results_text(results: Iterable[ToolResultBlock]) -> str:
    parts = []
    for result in results:
        content = result.content or ""
        text = content if isinstance(content, str) else "\n".join(block.text for block in content)
        failed = ' is_error="true"' if result.is_error else ""
        shown = textwrap.indent(_prettier(text), "    ", lambda line: True)
        parts.append(f'  <result name="{result.tool_use_id}"{failed}>\n{shown}\n  </result>\n')
    return f"<ai00:function_results>\n{''.join(parts)}</ai00:function_results>"


def _prettier(text: str) -> str:
    """Returns objects and arrays in JSON on several lines; other texts unchanged."""
    if not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return _pretty(read_json(text))
    except ValueError:
        return text


def _pretty(value: Any) -> str:
    """Returns JSON on several lines, or on one if that is much shorter.

    The blanks before a line grow with its depth: 1 MB of nested lists might become 1 GB.
    """
    short = _raw(value)
    pieces, left = [], _MAX_GROWTH * len(short)
    for piece in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(value):
        left -= len(piece)
        if left < 0:
            return short
        pieces.append(piece)
    return "".join(pieces)


def _raw(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
