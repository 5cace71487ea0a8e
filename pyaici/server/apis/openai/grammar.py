"""Lark grammars of answers: optional reasoning, then tool calls or JSON of a schema."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyaici.server.apis.openai.requests import Function
    from pyaici.server.apis.openai.tools import ToolFormat


_TEXT = r"TEXT: /(.|\n)*/"
_BLANK = r"BLANK: /[ \t\r\n]*/"


@dataclass(frozen=True, slots=True)
class Reasoning:
    """The markers around a model's reasoning."""

    begin: str = "<think>"
    end: str = "</think>"


@dataclass(frozen=True, slots=True)
class Start:
    """The beginning of an answer. `open`: the prompt ends within reasoning."""

    reasoning: Reasoning | None = None
    open: bool = False

    def rules(self) -> tuple[str, list[str]]:
        """Returns (what comes before the answer itself, the rules for that)."""
        if self.reasoning is None:
            return "", []
        thought = f"thought[lazy]: TEXT {_quote(self.reasoning.end)}"
        rules = [thought, _BLANK]
        if self.open:
            return "thought BLANK ", rules
        return "reasoning? ", [f"reasoning: {_quote(self.reasoning.begin)} thought BLANK", *rules]


def schema_grammar(schema: str, start: Start) -> str:
    """Returns the grammar of an answer in JSON. `schema`: its JSON Schema."""
    before, rules = start.rules()
    return _grammar(f"start: {before}answer", f"answer: %json {schema}", *rules, _TEXT)


def tool_grammar(
    functions: Sequence[Function],
    form: ToolFormat,
    start: Start,
    *,
    required: bool,
    parallel: bool,
) -> str:
    """Returns the grammar of an answer that may call these functions.

    Unless calls are `required`, the answer may also contain, or be, free text. `parallel`: several calls are
    allowed.
    """
    before, rules = start.rules()
    call = f"call: %json {_json(form.schema(functions, parallel=parallel))}"
    if form.end:
        call += f" {_quote(form.end)}"
    several = parallel and not form.listed
    if not form.begin:  # the whole answer is a call or a text: its first character decides
        first = f"start: {before}call" if required else f"start: {before}(call | PLAIN)"
        plain = rf"PLAIN: /[ \t\r\n]*([^\{form.first} \t\r\n](.|\n)*)?/"
        return _grammar(first, call, *rules, *([] if required else [plain]), *([_TEXT] if rules else []))
    if required:
        more = "(BLANK first_call)*" if several else ""
        again = [] if _BLANK in rules or not several else [_BLANK]
        first_call = f"first_call: {_quote(form.begin)} call"
        return _grammar(
            f"start: {before}first_call {more}", first_call, call, *rules, *again, *([_TEXT] if rules else [])
        )
    calls = "(before_call call)*" if several else "(before_call call)?"
    end = "TEXT" if several else "END"
    lines = [
        f"start: {before}{calls} {end}",
        f"before_call[lazy]: TEXT {_quote(form.begin)}",
        call,
        *rules,
        _TEXT,
    ]
    if not several:  # a second call is not allowed
        lines.append(rf"END: TEXT & ~/(.|\n)*{_pattern(form.begin)}(.|\n)*/")
    return _grammar(*lines)


def _grammar(*lines: str) -> str:
    return "\n".join(lines) + "\n"


def _json(schema: Any) -> str:
    return json.dumps(schema, ensure_ascii=False)


def _quote(text: str) -> str:
    """Returns a string literal of Lark."""
    return json.dumps(text)


def _pattern(text: str) -> str:
    """Returns a regular expression that matches this text, for use between slashes."""
    return "".join(
        f"\\{char}" if char in r"\/.[]{}()*+?^$|" else "\\n" if char == "\n" else char for char in text
    )
