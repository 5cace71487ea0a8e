"""What a model's template for chats knows of tools: found out by having it write some."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from pyaici.server.openai.tool_format import FORMATS, HERMES, LLAMA3, SMOLLM2, ToolFormat

_NAME, _ARGUMENTS, _RESULT = "probe_tool", {"probe_key": "probe value"}, "probe result"
#: braces keep its JSON from looking like the way to call it
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
    """In which way the model calls tools, and what of it need not be said in other words."""

    form: ToolFormat
    #: the template tells the model of its tools, and to call them in this way
    tells: bool = False
    #: it writes calls of earlier turns in this way, and their results
    writes: bool = False
    #: it takes messages of the system
    system: bool = True


@functools.lru_cache(maxsize=8)
def template_tools(tokenizer: Any, template: str) -> TemplateTools:
    """`template`: the one that `tokenizer` has by now.

    The answer of the model is kept to the format that is found here. A template with a way of its own, which
    is none of those, would tell the model of another one: it counts as one that knows no tools.
    """
    told = _render(tokenizer, [_ASK], [_TOOL])
    called = _render(tokenizer, [_ASK, _CALL, _ANSWER])
    system = _SYSTEM["content"] in _render(tokenizer, [_SYSTEM, _ASK])
    forms = [form for form in FORMATS.values() if form.before in template]
    for form in forms:
        if form.is_written(called, _NAME, _ARGUMENTS):
            return TemplateTools(form, _NAME in told, _RESULT in called, system)
    for form in forms:
        if _NAME in told and form.is_shown(told):
            return TemplateTools(form, tells=True, system=system)
    form = SMOLLM2 if "SmolLM" in template else LLAMA3 if "<|start_header_id|>" in template else HERMES
    return TemplateTools(form, system=system)


def _render(tokenizer: Any, messages: list[dict[str, Any]], tools: list[Any] | None = None) -> str:
    """Empty where the template refuses it, as many do that know no tools."""
    try:
        return str(
            tokenizer.apply_chat_template(messages, tools=tools, add_generation_prompt=True, tokenize=False)
        )
    except Exception:
        # whatever the program in a template comes to: types, names and arguments that it did not expect
        return ""
