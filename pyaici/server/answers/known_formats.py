"""All formats of tool calls that the server writes and reads, by name."""

from __future__ import annotations

from pyaici.server.answers.argument_formats import PythonicFormat, TaggedFormat
from pyaici.server.answers.formats import CallFormat, NamedFormat
from pyaici.server.answers.plan import CHANNEL, MESSAGE, NEXT

HERMES = CallFormat("hermes", "<tool_call>\n", "\n</tool_call>")
SMOLLM2 = CallFormat("smollm2", "<tool_call>", "</tool_call>", listed=True)
LLAMA3 = CallFormat(
    "llama3",
    "",
    "",
    arguments="parameters",
    before=("<|end_header_id|>", "<|header_end|>", "<|python_end|>"),
)
PHI4_MINI = CallFormat(
    "phi4_mini", "<|tool_call|>", "<|/tool_call|>", listed=True, tool_marks=("<|tool|>", "<|/tool|>")
)
COMMAND_R7B = CallFormat(
    "command_r7b",
    "<|START_ACTION|>",
    "<|END_ACTION|>",
    name_key="tool_name",
    arguments="parameters",
    number_key="tool_call_id",
    listed=True,
)
COMMAND_R = CallFormat(
    "command_r",
    "Action:\n```json\n",
    "```",
    name_key="tool_name",
    arguments="parameters",
    listed=True,
)
MISTRAL = CallFormat("mistral", "[TOOL_CALLS]", "", listed=True, short_ids=True)
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
#: calls of ai00: all are in one element, each with a line for each argument
AI00 = TaggedFormat(
    "ai00",
    "<ai00:function_calls>",
    "\n</ai00:function_calls>",
    listed=True,
    final=True,
    name_marks=('\n  <invoke name="', '">'),
    key_marks=('\n    <parameter name="', '">'),
    end_of_value="</parameter>",
    end_of_arguments="\n  </invoke>",
)
PYTHONIC = PythonicFormat("pythonic", "", "", listed=True)
#: those of chat templates, in the order in which templates are compared with them
FORMATS = {
    found.name: found
    for found in (
        *(HERMES, SMOLLM2, LLAMA3, PHI4_MINI, COMMAND_R7B, COMMAND_R, MISTRAL, MISTRAL_ARGS),
        *(DEEPSEEK_V3, DEEPSEEK_V31, HARMONY, QWEN3_CODER, GLM4, PYTHONIC),
    )
}
