"""Finds the format of a model's tool calls by its chat template."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyaici.engines.prompts import chat_text
from pyaici.server.answers.formats import CallFormat, as_object
from pyaici.server.answers.known_formats import (
    COMMAND_R,
    FORMATS,
    HERMES,
    LLAMA3,
    PHI4_MINI,
    PYTHONIC,
    SMOLLM2,
)

_NAME, _ARGUMENTS, _RESULT = "probe_tool", {"probe_key": "probe value"}, "probe result"
#: the arguments of another call, and its result
_SECOND = "second probe"
#: arguments that are not JSON
_TEXT = "probe {text"
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
#: formats of models whose templates have no calls, by a part of the template
_BY_MARK = {
    "SmolLM": SMOLLM2,
    "<|start_header_id|>": LLAMA3,
    "<|tool|>": PHI4_MINI,
    # Gemma 3: Google's documentation of its calls asks for this format
    "<start_of_image>": PYTHONIC,
    # Command R, whose first templates take tools only in Cohere's own notation
    "<|CHATBOT_TOKEN|>": COMMAND_R,
}
_ANSWER = {"role": "tool", "tool_call_id": "probe0000", "name": _NAME, "content": _RESULT}


@dataclass(frozen=True, slots=True)
class TemplateTools:
    """The tool format of a model, and what its chat template already does."""

    form: CallFormat
    #: the template presents the tools to the model, and asks for calls in this format
    describes_tools: bool = False
    #: the template writes calls of earlier turns in this format, and their results
    writes_calls: bool = False
    #: a message may have several of these calls, and their results follow each other
    several_calls: bool = False
    #: the template accepts system messages
    system: bool = True
    #: the template takes arguments as JSON in a string
    text_arguments: bool = False
    #: or an object, and any text in its place
    any_arguments: bool = False

    def message(self, content: str, calls: Sequence[tuple[str | None, str, Any]]) -> dict[str, Any]:
        """Returns an assistant's message with calls (id, name, arguments), as the template takes it."""
        return {
            "role": "assistant",
            "content": content,
            "tool_calls": [
                {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
                for call_id, name, value in calls
                for arguments in [self._taken(value)]
            ],
        }

    def _taken(self, arguments: Any) -> Any:
        if self.text_arguments:
            return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        return arguments if self.any_arguments else as_object(arguments)


@functools.lru_cache(maxsize=8)
def template_tools(tokenizer: Any, template: str) -> TemplateTools:
    """Returns the tool format of a model. `template`: the current chat template of `tokenizer`.

    Answers are held to the format that is found here. A template with another format of its own would present
    that one to the model: it counts as a template without tools.
    """
    with_tools = _render(tokenizer, [_ASK], [_TOOL])
    system = _SYSTEM["content"] in _render(tokenizer, [_SYSTEM, _ASK])
    forms = [form for form in FORMATS.values() if any(mark in template for mark in form.before)]
    for text_arguments in (False, True):
        found = TemplateTools(HERMES, _NAME in with_tools, True, False, system, text_arguments)
        call = found.message("", [("probe0000", _NAME, _ARGUMENTS)])
        written = _render(tokenizer, [_ASK, call, _ANSWER])
        for form in forms:
            if form.is_written(written, _NAME, _ARGUMENTS):
                found = replace(found, form=form, writes_calls=_RESULT in written, any_arguments=True)
                second = ("probe0001", _NAME, {"probe_key": _SECOND})
                call = found.message("", [("probe0000", _NAME, _ARGUMENTS), second])
                answer = {**_ANSWER, "tool_call_id": "probe0001", "content": _SECOND}
                several = _render(tokenizer, [_ASK, call, _ANSWER, answer]).count(_SECOND) == 2
                call = found.message("", [("probe0000", _NAME, _TEXT)])
                text = _TEXT in _render(tokenizer, [_ASK, call, _ANSWER])
                return replace(found, several_calls=several, any_arguments=text)
    for form in forms:
        if _NAME in with_tools and form.is_shown(with_tools):
            return TemplateTools(form, describes_tools=True, system=system)
    form = next((form for mark, form in _BY_MARK.items() if mark in template), HERMES)
    return TemplateTools(form, system=system)


def _render(tokenizer: Any, messages: list[dict[str, Any]], tools: list[Any] | None = None) -> str:
    """Returns the rendered chat; empty if the template refuses it, as many without tools do."""
    try:
        return chat_text(tokenizer, messages, tools=tools)
    except ValueError:
        return ""
