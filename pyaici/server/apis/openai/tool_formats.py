"""All formats of tool calls that the server writes and reads, by name."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyaici.server.apis.openai.argument_formats import PythonicFormat, TaggedFormat
from pyaici.server.apis.openai.channels import CHANNEL, MESSAGE, NEXT
from pyaici.server.apis.openai.lark import lark_text
from pyaici.server.apis.openai.tool_format import NO_PARAMETERS, ToolFormat
from pyaici.server.apis.text import split_json

if TYPE_CHECKING:
    from pyaici.server.apis.openai.requests import Function


@dataclass(frozen=True, slots=True)
class NamedFormat(ToolFormat):
    """The format of calls that begin with the function's name; its arguments follow as a JSON object.

    All calls are between one pair of markers.
    """

    #: what is written before and after the name, after the arguments, and between two calls
    before_name: str = ""
    after_name: str = ""
    after_arguments: str = ""
    between: str = ""
    #: how the templates write a call, if they put its parts in another order; `NAME` is the name
    in_templates: str | None = None

    def rules(self, functions: Sequence[Function], *, parallel: bool) -> list[str]:
        """See `ToolFormat.rules`."""
        names = " | ".join(f"call_{i}" for i in range(len(functions)))
        between = f"{lark_text(self.between)} " if self.between else ""
        more = f"({between}one_call)*" if parallel and self.listed else ""
        found = [f"call: one_call {more} {lark_text(self.end) if self.end else ''}", f"one_call: {names}"]
        for i, function in enumerate(functions):
            begin = lark_text(self.before_name + function.name + self.after_name)
            schema = json.dumps(function.parameters or NO_PARAMETERS, ensure_ascii=False)
            end = lark_text(self.after_arguments) if self.after_arguments else ""
            found.append(f"call_{i}: {begin} %json {schema} {end}")
        return found

    def read(self, body: str) -> list[tuple[str, Any]]:
        """See `ToolFormat.read`."""
        calls, rest = [], body
        while True:
            name, mark, rest = rest.removeprefix(self.before_name).partition(self.after_name)
            arguments, rest = split_json(rest)
            end = self.after_arguments.lstrip()
            if not mark or not rest.startswith(end):
                raise ValueError("not a call")
            calls.append((name, arguments))
            rest = rest[len(end) :].lstrip()
            if not rest:
                return calls
            between = self.between.strip() + self.before_name
            if not rest.startswith(between):
                raise ValueError("not a call")
            rest = rest[len(between) :]

    def write(self, calls: Sequence[tuple[str, Any]]) -> str:
        """See `ToolFormat.write`."""
        bodies = [
            f"{self.before_name}{name}{self.after_name}{json.dumps(arguments, ensure_ascii=False)}"
            f"{self.after_arguments}"
            for name, arguments in calls
        ]
        if not self.listed:
            return "".join(f"{self.begin}{body}{self.end}" for body in bodies)
        return f"{self.begin}{self.between.join(bodies)}{self.end}"

    def is_written(self, text: str, name: str, arguments: Any) -> bool:
        """See `ToolFormat.is_written`."""
        own = self.in_templates or f"{self.begin}{self.before_name}NAME{self.after_name}"
        written = json.dumps(arguments, ensure_ascii=False)
        return bool(re.search(rf"{re.escape(own.replace('NAME', name))}\s*{re.escape(written)}", text))

    def is_shown(self, text: str) -> bool:
        """Returns False: templates describe such formats in words of their own."""
        return False


HERMES = ToolFormat("hermes", "<tool_call>\n", "\n</tool_call>")
SMOLLM2 = ToolFormat("smollm2", "<tool_call>", "</tool_call>", listed=True)
LLAMA3 = ToolFormat(
    "llama3",
    "",
    "",
    arguments="parameters",
    before=("<|end_header_id|>", "<|header_end|>", "<|python_end|>"),
)
PHI4_MINI = ToolFormat(
    "phi4_mini", "<|tool_call|>", "<|/tool_call|>", listed=True, tool_marks=("<|tool|>", "<|/tool|>")
)
COMMAND_R7B = ToolFormat(
    "command_r7b",
    "<|START_ACTION|>",
    "<|END_ACTION|>",
    name_key="tool_name",
    arguments="parameters",
    number_key="tool_call_id",
    listed=True,
)
COMMAND_R = ToolFormat(
    "command_r",
    "Action:\n```json\n",
    "```",
    name_key="tool_name",
    arguments="parameters",
    listed=True,
)
MISTRAL = ToolFormat("mistral", "[TOOL_CALLS]", "", listed=True, short_ids=True)
MISTRAL_ARGS = NamedFormat(
    "mistral_args",
    "[TOOL_CALLS]",
    "",
    listed=True,
    short_ids=True,
    after_name="[ARGS]",
    between="[TOOL_CALLS]",
)
DEEPSEEK_V3 = NamedFormat(
    "deepseek_v3",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    listed=True,
    before_name="<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
    after_name="\n```json\n",
    after_arguments="\n```<｜tool▁call▁end｜>",
    between="\n",
)
DEEPSEEK_V31 = NamedFormat(
    "deepseek_v31",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    listed=True,
    before_name="<｜tool▁call▁begin｜>",
    after_name="<｜tool▁sep｜>",
    after_arguments="<｜tool▁call▁end｜>",
)
#: calls of gpt-oss, whose answers have channels: see `ChannelReader`
HARMONY = NamedFormat(
    "harmony",
    f"{CHANNEL}commentary to=functions.",
    "",
    listed=True,
    after_name=f" <|constrain|>json{MESSAGE}",
    between=f"{CHANNEL}commentary to=functions.",
    in_templates=f"{NEXT} to=functions.NAME{CHANNEL}commentary json{MESSAGE}",
)
QWEN3_CODER = TaggedFormat(
    "qwen3_coder",
    "<tool_call>\n",
    "\n</tool_call>",
    name_marks=("<function=", ">\n"),
    key_marks=("<parameter=", ">\n"),
    end_of_value="\n</parameter>\n",
    end_of_arguments="</function>",
)
GLM4 = TaggedFormat(
    "glm4",
    "<tool_call>",
    "</tool_call>",
    name_marks=("", "\n"),
    key_marks=("<arg_key>", "</arg_key>\n<arg_value>"),
    end_of_value="</arg_value>\n",
)
PYTHONIC = PythonicFormat("pythonic", "", "", listed=True)
#: in the order in which templates are compared with them
FORMATS = {
    found.name: found
    for found in (
        *(HERMES, SMOLLM2, LLAMA3, PHI4_MINI, COMMAND_R7B, COMMAND_R, MISTRAL, MISTRAL_ARGS),
        *(DEEPSEEK_V3, DEEPSEEK_V31, HARMONY, QWEN3_CODER, GLM4, PYTHONIC),
    )
}
