"""Formats in which models write tool calls, found by the model's chat template."""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pyaici.server.apis.openai.lark import lark_text
from pyaici.server.apis.schemas import Property, properties
from pyaici.server.apis.text import read_json

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

    def supports(self, functions: Sequence[Function]) -> bool:
        """Returns whether the grammar of these functions' calls can be written in this format."""
        return True

    def bound(self, functions: Sequence[Function]) -> ToolFormat:
        """Returns the format for reading calls of these functions."""
        return self

    def rules(self, functions: Sequence[Function], *, parallel: bool) -> list[str]:
        """Returns rules of Lark for what follows `begin`; the rule `call` is the first one."""
        schema = json.dumps(self.schema(functions, parallel=parallel), ensure_ascii=False)
        return [f"call: %json {schema} {lark_text(self.end) if self.end else ''}"]

    def read(self, body: str) -> list[tuple[str, Any]]:
        """Returns the calls (name, arguments) between the markers. Raises ValueError for anything else."""
        value: Any = read_json(body)
        try:
            return [(str(call["name"]), call[self.arguments]) for call in (value if self.listed else [value])]
        except (TypeError, KeyError):
            raise ValueError("not a call") from None

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


@dataclass(frozen=True, slots=True)
class TaggedFormat(ToolFormat):
    """The format of calls in which each argument is between marks of its own.

    Texts are written as they are, other values as JSON.
    """

    #: what is written around the name of the function, and around the name of an argument
    name_marks: tuple[str, str] = ("", "")
    key_marks: tuple[str, str] = ("", "")
    #: what ends a value, and all arguments
    end_of_value: str = ""
    end_of_arguments: str = ""
    #: arguments of the functions by name, to read their values
    known: Mapping[str, Mapping[str, Property]] = field(default_factory=dict)

    def supports(self, functions: Sequence[Function]) -> bool:
        """See `ToolFormat.supports`: each argument must have a schema of its own."""
        return all(self._is_plain(function.parameters or {}) for function in functions)

    def _is_plain(self, schema: Mapping[str, Any]) -> bool:
        found = properties(schema)
        required = set(schema.get("required", ()))
        if not schema.keys() <= _PLAIN or not required <= {prop.name for prop in found}:
            return False
        if schema.get("type", "object") != "object" or schema.get("additionalProperties"):
            return False
        return all(self._is_plain_property(prop) for prop in found)

    def _is_plain_property(self, prop: Property) -> bool:
        if not prop.name or set("<>\n") & set(prop.name) or not isinstance(prop.schema, dict):
            return False
        if not prop.is_text:
            return True
        values = prop.schema.get("enum", [])
        return prop.schema.keys() <= _PLAIN_TEXT and not any(self.end_of_value in text for text in values)

    def bound(self, functions: Sequence[Function]) -> ToolFormat:
        """See `ToolFormat.bound`."""
        known = {
            function.name: {prop.name: prop for prop in properties(function.parameters or {})}
            for function in functions
        }
        return replace(self, known=known)

    def rules(self, functions: Sequence[Function], *, parallel: bool) -> list[str]:
        """See `ToolFormat.rules`. Arguments are in the order of the schema."""
        names = " | ".join(f"call_{i}" for i in range(len(functions)))
        found = [f"call: ({names}) {lark_text(self.end)}", r"ANY: /(.|\n)*/"]
        for i, function in enumerate(functions):
            parameters = function.parameters or {}
            definitions = {key: parameters[key] for key in ("$defs", "definitions") if key in parameters}
            parts = []
            for j, prop in enumerate(properties(parameters)):
                key, end = prop.name.join(self.key_marks), lark_text(self.end_of_value)
                part = f"argument_{i}_{j}"
                parts.append(part if prop.required else f"{part}?")
                if not prop.is_text:
                    schema = json.dumps({**definitions, **prop.schema}, ensure_ascii=False)
                    value = f"%json {schema} {end}"
                elif texts := prop.schema.get("enum"):
                    value = f"({' | '.join(map(lark_text, texts))}) {end}"
                else:
                    value = f"value_{i}_{j}"
                    found.append(f"{value}[lazy]: ANY {end}")
                found.append(f"{part}: {lark_text(key)} {value}")
            name = lark_text(function.name.join(self.name_marks))
            end = lark_text(self.end_of_arguments) if self.end_of_arguments else ""
            found.append(f"call_{i}: {name} {' '.join(parts)} {end}")
        return found

    def read(self, body: str) -> list[tuple[str, Any]]:
        """See `ToolFormat.read`."""
        before, after = self.name_marks
        name, mark, rest = body.removeprefix(before).partition(after)
        if not body.startswith(before) or not mark or not rest.endswith(self.end_of_arguments):
            raise ValueError("not a call")
        rest = rest[: len(rest) - len(self.end_of_arguments)]
        values: dict[str, Any] = {}
        begin, middle = self.key_marks
        while rest:
            key, mark, value = rest.removeprefix(begin).partition(middle)
            text, end, left = value.partition(self.end_of_value)
            if not rest.startswith(begin) or not mark or not end:
                raise ValueError("not a call")
            prop = self.known.get(name, {}).get(key)
            values[key] = prop.read(text) if prop else _guess(text)
            rest = left
        return [(name, values)]

    def write(self, calls: Sequence[tuple[str, Any]]) -> str:
        """See `ToolFormat.write`."""
        return "\n".join(f"{self.begin}{self._body(name, values)}{self.end}" for name, values in calls)

    def _body(self, name: str, values: Mapping[str, Any]) -> str:
        written = "".join(
            f"{key.join(self.key_marks)}"
            f"{value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}{self.end_of_value}"
            for key, value in values.items()
        )
        return f"{name.join(self.name_marks)}{written}{self.end_of_arguments}"

    def is_written(self, text: str, name: str, arguments: Any) -> bool:
        """See `ToolFormat.is_written`."""
        return self.write([(name, arguments)]) in text

    def is_shown(self, text: str) -> bool:
        """Returns False: templates describe such formats in words of their own."""
        return False

    def describe(self, functions: Sequence[Function]) -> str:
        """See `ToolFormat.describe`."""
        example = self.write([("<name of the function>", {"<parameter>": "<value>"})])
        return ToolFormat.describe(self, functions).rpartition("\n")[0] + "\n" + example


def _guess(text: str) -> Any:
    try:
        return read_json(text)
    except ValueError:
        return text


#: keywords of the schema of all arguments, and of that of a text, that a format with tags can enforce
_PLAIN = frozenset(
    ("type", "properties", "required", "additionalProperties", "description", "title", "$defs", "definitions")
)
_PLAIN_TEXT = frozenset(("type", "enum", "description", "title", "default", "examples"))
HERMES = ToolFormat("hermes", "<tool_call>\n", "\n</tool_call>")
SMOLLM2 = ToolFormat("smollm2", "<tool_call>", "</tool_call>", listed=True)
MISTRAL = ToolFormat("mistral", "", "", listed=True, before="[TOOL_CALLS]")
LLAMA3 = ToolFormat("llama3", "", "", arguments="parameters", before="<|end_header_id|>")
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
FORMATS = {found.name: found for found in (HERMES, SMOLLM2, MISTRAL, LLAMA3, QWEN3_CODER, GLM4)}


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
