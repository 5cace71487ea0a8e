"""Formats in which models write tool calls, found by the model's chat template."""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyaici.server.apis.openai.requests import Function


#: schema of a tool without parameters
_NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}
#: ids of calls that the templates of Mistral accept
_NINE = re.compile("[a-zA-Z0-9]{9}")


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """The format of calls: JSON objects with the keys `name` and `arguments`, between `begin` and `end`.

    Without markers the whole answer is calls, or has none: its first character decides.
    """

    name: str
    begin: str
    end: str
    #: key of the arguments
    arguments: str = "arguments"
    #: whether a list of calls is between the markers, not one call
    listed: bool = False
    #: what templates write before calls without markers: special tokens, which have no text
    before: str = ""

    @property
    def first(self) -> str:
        """The first character between the markers."""
        return "[" if self.listed else "{"

    def schema(self, functions: Sequence[Function], *, parallel: bool) -> dict[str, Any]:
        """Returns the JSON Schema of what is between the markers."""
        calls = [
            {
                "type": "object",
                "properties": {
                    "name": {"const": function.name},
                    self.arguments: function.parameters or _NOTHING,
                },
                "required": ["name", self.arguments],
                "additionalProperties": False,
            }
            for function in functions
        ]
        call: dict[str, Any] = calls[0] if len(calls) == 1 else {"anyOf": calls}
        if not self.listed:
            return call
        schema = {"type": "array", "items": call, "minItems": 1}
        return schema if parallel else {**schema, "maxItems": 1}

    def write(self, calls: Sequence[tuple[str, Any]]) -> str:
        """Returns calls (name, arguments) as a model writes them."""
        values = [{"name": name, self.arguments: arguments} for name, arguments in calls]
        bodies: list[Any] = [values] if self.listed else values
        return "\n".join(f"{self.begin}{json.dumps(body, ensure_ascii=False)}{self.end}" for body in bodies)

    def is_written(self, text: str, name: str, arguments: Any) -> bool:
        """Tells whether a template has written this call in this format; it may also give the call an id."""
        call = json.dumps({"name": name, self.arguments: arguments}, ensure_ascii=False)[:-1]
        written = re.escape(self.begin + "[" * self.listed + call)
        return bool(re.search(rf"{re.escape(self.before)}\s*{written}[,}}]", text))

    def is_shown(self, text: str) -> bool:
        """Tells whether a template describes this format, as ``{"name": <name>, "arguments": ...``.

        The description has no more quotes than these.
        """
        begin = re.escape(self.begin + "[" * self.listed)
        return bool(re.search(rf'{begin}\{{"name": [^"{{}}\n]+, "{self.arguments}":', text))

    def call_id(self, given: str | None) -> str | None:
        """Returns a call's id as templates accept it: Mistral's refuse any that has not nine characters."""
        if self is not MISTRAL or _NINE.fullmatch(given or ""):
            return given
        return hashlib.sha256((given or "").encode("utf-8", "replace")).hexdigest()[:9]

    def describe(self, functions: Sequence[Function]) -> str:
        """Returns a part of the system message, for models whose template does not present tools."""
        listed = "\n".join(
            json.dumps(
                {"type": "function", "function": function.model_dump(exclude_none=True, exclude={"strict"})},
                ensure_ascii=False,
            )
            for function in functions
        )
        example: Any = {"name": "<name of the function>", self.arguments: {"<parameter>": "<value>"}}
        if self.listed:
            example = [example]
        return (
            f"You may call functions. These are there, each with a JSON Schema of its parameters:\n"
            f"<tools>\n{listed}\n</tools>\n"
            f"To call one, write exactly this, and nothing behind it:\n"
            f"{self.begin}{json.dumps(example)}{self.end}"
        )


HERMES = ToolFormat("hermes", "<tool_call>\n", "\n</tool_call>")
SMOLLM2 = ToolFormat("smollm2", "<tool_call>", "</tool_call>", listed=True)
MISTRAL = ToolFormat("mistral", "", "", listed=True, before="[TOOL_CALLS]")
LLAMA3 = ToolFormat("llama3", "", "", arguments="parameters", before="<|end_header_id|>")
FORMATS = {found.name: found for found in (HERMES, SMOLLM2, MISTRAL, LLAMA3)}


_NAME, _ARGUMENTS, _RESULT = "probe_tool", {"probe_key": "probe value"}, "probe result"
#: braces keep its JSON from looking like a description of the format
_TOOL = {
    "type": "function",
    "function": {
        "name": _NAME,
        "description": "a {probe}",
        "parameters": {"type": "object", "properties": {"probe_key": {"type": "string"}}},
    },
}
_SYSTEM = {"role": "system", "content": "probe system"}
_ASK = {"role": "user", "content": "probe"}
_CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {"id": "probe0000", "type": "function", "function": {"name": _NAME, "arguments": _ARGUMENTS}}
    ],
}
_ANSWER = {"role": "tool", "tool_call_id": "probe0000", "name": _NAME, "content": _RESULT}


@dataclass(frozen=True, slots=True)
class TemplateTools:
    """The tool format of a model, and what its chat template already does."""

    form: ToolFormat
    #: the template presents the tools to the model, and asks for calls in this format
    describes_tools: bool = False
    #: the template writes calls of earlier turns in this format, and their results
    writes_calls: bool = False
    #: the template accepts system messages
    system: bool = True


@functools.lru_cache(maxsize=8)
def template_tools(tokenizer: Any, template: str) -> TemplateTools:
    """Returns the tool format of a model. `template`: the current chat template of `tokenizer`.

    Answers are held to the format that is found here. A template with another format of its own would present
    that one to the model: it counts as a template without tools.
    """
    with_tools = _render(tokenizer, [_ASK], [_TOOL])
    with_calls = _render(tokenizer, [_ASK, _CALL, _ANSWER])
    system = _SYSTEM["content"] in _render(tokenizer, [_SYSTEM, _ASK])
    forms = [form for form in FORMATS.values() if form.before in template]
    for form in forms:
        if form.is_written(with_calls, _NAME, _ARGUMENTS):
            return TemplateTools(form, _NAME in with_tools, _RESULT in with_calls, system)
    for form in forms:
        if _NAME in with_tools and form.is_shown(with_tools):
            return TemplateTools(form, describes_tools=True, system=system)
    form = SMOLLM2 if "SmolLM" in template else LLAMA3 if "<|start_header_id|>" in template else HERMES
    return TemplateTools(form, system=system)


def _render(tokenizer: Any, messages: list[dict[str, Any]], tools: list[Any] | None = None) -> str:
    """Returns the rendered chat; empty if the template refuses it, as many without tools do."""
    try:
        return str(
            tokenizer.apply_chat_template(messages, tools=tools, add_generation_prompt=True, tokenize=False)
        )
    except Exception:
        # a template may raise any error: for types, names and arguments that it did not expect
        return ""
