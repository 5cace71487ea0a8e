"""Renders a model's chat template, a Jinja program that came with the model, for all engines alike.

Templates rely on settings and functions of the Transformers library: blocks are trimmed, `tojson` does not
escape HTML, and `raise_exception` and `strftime_now` exist. Templates run in Jinja's sandbox, with bounded
time and numbers, since models come from strangers; the library's own function has no such bounds.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence, Sized
from contextvars import ContextVar
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

from pyaici.engines.prompts import indented


class _Generation(Extension):
    """The tag `generation`, which marks the assistant's part for training, and has no effect here."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares a set

    def parse(self, parser: Any) -> Any:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


#: most blanks before a line of JSON, for each level
_MOST_INDENT = 16


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    options: dict[str, Any] = {"ensure_ascii": ensure_ascii, "separators": separators, "sort_keys": sort_keys}
    if indent is None:
        return json.dumps(value, **options)
    if (len(indent) if isinstance(indent, str) else indent) > _MOST_INDENT:
        _raise(f"a chat template may not indent by more than {_MOST_INDENT}")
    return indented(value, indent, **options)


#: processor seconds that a template may take; others take milliseconds
SECONDS = 5.0
#: bits of a product or power, and length of a repeated text or list
_MOST_BITS, _MOST_LENGTH = 1 << 10, 1 << 20
_end: ContextVar[float] = ContextVar("end", default=math.inf)


class _Bounded(ImmutableSandboxedEnvironment):
    """A sandbox that also bounds time, numbers and repetitions, while it compiles a template, too."""

    intercepted_binops = frozenset(("**", "*"))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Computes a product or a power. Raises TemplateError if it is too large."""
        sizes = [
            value.bit_length() if isinstance(value, int) else len(value) if isinstance(value, Sized) else 1
            for value in (left, right)
        ]
        if operator == "**":
            most = sizes[0] * abs(right) if isinstance(right, int) else 0
            too_large = most > _MOST_BITS
        elif isinstance(left, Sized) or isinstance(right, Sized):
            count, each = (left, sizes[1]) if isinstance(left, int) else (right, sizes[0])
            too_large = isinstance(count, int) and count * each > _MOST_LENGTH
        else:
            too_large = sum(sizes) > _MOST_BITS
        if too_large:
            _raise(f"a chat template may not compute anything as large as this {operator}")
        return super().call_binop(context, operator, left, right)

    def tick(self) -> None:
        """Raises TemplateError if the time is over; each turn of a loop or macro calls it."""
        if time.thread_time() > _end.get():
            _raise(f"the chat template takes longer than {SECONDS:g} s")

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        blocks: list[Any] = list(tree.find_all((nodes.For, nodes.Macro, nodes.CallBlock)))
        for block in blocks:
            call = nodes.Call(nodes.EnvironmentAttribute("tick"), [], [], None, None)
            block.body.insert(0, nodes.ExprStmt(call).set_lineno(block.lineno))
        return tree


@lru_cache(maxsize=8)
def _compiled(template: str) -> jinja2.Template:
    environment = _Bounded(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment.from_string(template)


#: names of a message's reasoning, the first of which templates read, except those that only know the second
_REASONING = ("reasoning_content", "thinking", "reasoning")


def chat_text(
    tokenizer: Any,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    answer: bool = True,
    variables: Mapping[str, Any] | None = None,
) -> str:
    """Returns the text of a chat in the template of a tokenizer: Transformers' or llama.cpp's.

    `answer`: add the beginning of an answer. `variables`: of the template. Fields without a value are left
    out, and reasoning has all names that templates use, as in Transformers. Raises ValueError if the
    template refuses the chat, or if there is none.
    """
    template = template_of(tokenizer, tools=bool(tools))
    if not template:
        raise ValueError("the model has no chat template: give a plain text")
    settings = {
        **tokenizer.special_tokens_map,
        "documents": None,
        "tools": list(tools) if tools else None,
        "add_generation_prompt": answer,
        **(variables or {}),
    }
    try:
        return render_chat(template, [_told(message) for message in messages], settings)
    except Exception as error:  # a template may raise any error
        raise ValueError(f"the model's chat template refuses the chat: {error}") from None


def template_of(tokenizer: Any, *, tools: bool = False) -> str:
    """Returns a tokenizer's template for chats, or for those with tools; empty if it has none."""
    template = getattr(tokenizer, "chat_template", None)
    if isinstance(template, dict):  # several templates by name, as Command R has
        template = template.get("tool_use" if tools and "tool_use" in template else "default")
    return template if isinstance(template, str) else ""


def _told(message: Mapping[str, Any]) -> dict[str, Any]:
    told = {name: value for name, value in message.items() if value is not None}
    for name in _REASONING:
        if name in told:
            return {"thinking": told[name], **told, "reasoning_content": told[name]}
    return told


def render_chat(template: str, messages: Sequence[Mapping[str, Any]], variables: Mapping[str, Any]) -> str:
    """Returns the text of a chat. Raises jinja2.TemplateError if the template refuses it, or takes long."""
    token = _end.set(time.thread_time() + SECONDS)
    try:
        return _compiled(template).render(messages=list(messages), **variables)
    finally:
        _end.reset(token)
