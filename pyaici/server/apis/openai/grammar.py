"""Lark grammars of answers: optional reasoning, then tool calls or JSON of a schema."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyaici.server.apis.openai.channels import ANALYSIS, END, FINAL, NEXT
from pyaici.server.apis.openai.lark import lark_text, literal_pattern
from pyaici.server.apis.thinking import END_OF_THINKING, THINK

if TYPE_CHECKING:
    from pyaici.server.apis.openai.requests import Function
    from pyaici.server.apis.openai.tool_format import ToolFormat


_TEXT = r"TEXT: /(.|\n)*/"
_BLANK = r"BLANK: /[ \t\r\n]*/"


@dataclass(frozen=True, slots=True)
class Reasoning:
    """The markers around a model's reasoning."""

    begin: str = THINK
    end: str = END_OF_THINKING


@dataclass(frozen=True, slots=True)
class Start:
    """The beginning of an answer. `open`: the prompt ends within reasoning; with channels, in the answer."""

    reasoning: Reasoning | None = None
    open: bool = False
    #: the model writes in channels, as gpt-oss does
    channels: bool = False

    def rules(self) -> tuple[str, list[str]]:
        """Returns (what comes before the answer itself, the rules for that)."""
        if self.channels:
            before, rules = self.analysis()
            return f"{before}{lark_text(FINAL)} ", rules
        if self.reasoning is None:
            return "", []
        thought = f"thought[lazy]: TEXT {lark_text(self.reasoning.end)}"
        rules = [thought, _BLANK]
        if self.open:
            return "thought BLANK ", rules
        return "reasoning? ", [f"reasoning: {lark_text(self.reasoning.begin)} thought BLANK", *rules]

    def analysis(self) -> tuple[str, list[str]]:
        """Returns (optional reasoning in a channel, up to the header of the next message, its rules)."""
        if self.reasoning is None:
            return "", []
        rules = [f"reasoning: {lark_text(ANALYSIS)} thought", f"thought[lazy]: TEXT {lark_text(END + NEXT)}"]
        return "reasoning? ", rules


def schema_grammar(schema: str, start: Start) -> str:
    """Returns the grammar of an answer in JSON. `schema`: its JSON Schema."""
    return with_reasoning(start, f"%json {schema}", [_TEXT])


def with_reasoning(start: Start, answer: str, definitions: Sequence[str]) -> str:
    """Returns the grammar of an answer after optional reasoning.

    `answer`: an expression; `definitions` has the rules that it needs, and the terminal TEXT of any text.
    """
    before, rules = start.rules()
    return _grammar(f"start: {before}answer", f"answer: {answer}", *rules, *definitions)


def tool_grammar(
    functions: Sequence[Function],
    form: ToolFormat,
    start: Start,
    *,
    required: bool,
    parallel: bool,
    schema: str | None = None,
) -> str:
    """Returns the grammar of an answer that may call these functions.

    Unless calls are `required`, the answer may also contain, or be, free text. `parallel`: several calls are
    allowed. `schema`: the JSON Schema of an answer without calls; such an answer has no text beside calls.
    """
    # a call in a channel ends the answer
    calling = form.rules(functions, parallel=parallel and not start.channels)
    if start.channels:
        before, rules = start.analysis()
        answer = "TEXT" if schema is None else f"%json {schema}"
        final = [] if required else [f"final: {lark_text(FINAL)} {answer}"]
        first_call = f"first_call: {lark_text(form.begin)} call"
        text = [_TEXT] if rules or (final and schema is None) else []
        start_rule = f"start: {before}(first_call{' | final' if final else ''})"
        return _grammar(start_rule, first_call, *calling, *final, *rules, *text)
    before, rules = start.rules()
    several = parallel and not form.listed
    if schema is not None and not required:
        calls = "call" if not form.begin else "first_call"
        several = several and bool(form.begin)
        lines = [
            f"start: {before}({calls}{' (BLANK first_call)*' if several else ''} | answer)",
            f"answer: %json {schema}",
            *calling,
            *([f"first_call: {lark_text(form.begin)} call"] if form.begin else []),
            *rules,
            *([_BLANK] if several and _BLANK not in rules else []),
            *([_TEXT] if rules else []),
        ]
        return _grammar(*lines)
    if not form.begin:  # the whole answer is a call or a text: its first character decides
        first = f"start: {before}call" if required else f"start: {before}(call | PLAIN)"
        plain = rf"PLAIN: /[ \t\r\n]*([^\{form.first} \t\r\n](.|\n)*)?/"
        return _grammar(first, *calling, *rules, *([] if required else [plain]), *([_TEXT] if rules else []))
    if required:
        more = "(BLANK first_call)*" if several else ""
        again = [] if _BLANK in rules or not several else [_BLANK]
        first_call = f"first_call: {lark_text(form.begin)} call"
        text = [_TEXT] if rules else []
        return _grammar(f"start: {before}first_call {more}", first_call, *calling, *rules, *again, *text)
    calls = "(before_call call)*" if several else "(before_call call)?"
    end = "TEXT" if several else "END"
    # without an end marker nothing may follow the calls
    answer = f"{calls} {end}" if form.end else f"(before_call call | {end})"
    lines = [
        f"start: {before}{answer}",
        f"before_call[lazy]: TEXT {lark_text(form.begin)}",
        *calling,
        *rules,
        _TEXT,
    ]
    if not several:  # a second call is not allowed
        lines.append(rf"END: TEXT & ~/(.|\n)*{literal_pattern(form.begin)}(.|\n)*/")
    return _grammar(*lines)


def _grammar(*lines: str) -> str:
    return "\n".join(lines) + "\n"
