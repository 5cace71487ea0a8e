"""Tokens that models write inside an answer, such as the marks around a tool call: here they are text."""

from __future__ import annotations

from collections.abc import Collection

#: Marks of tool calls. Tokenizers list many of them as special tokens, which no text has; but a grammar must
#: be able to ask for them. A tokenizer that lacks a mark of a set uses the others for something else.
_SETS = (
    frozenset({"[TOOL_CALLS]"}),
    frozenset({"[TOOL_CALLS]", "[ARGS]"}),
    frozenset({"<|tool_call|>", "<|/tool_call|>"}),
    frozenset({"<|START_ACTION|>", "<|END_ACTION|>"}),
    frozenset(
        {
            "<｜tool▁calls▁begin｜>",
            "<｜tool▁call▁begin｜>",
            "<｜tool▁sep｜>",
            "<｜tool▁call▁end｜>",
            "<｜tool▁calls▁end｜>",
        }
    ),
    # gpt-oss; its <|call|> and <|return|> end an answer
    frozenset({"<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>"}),
)


def markup(names: Collection[str]) -> frozenset[str]:
    """Returns those of a tokenizer's added tokens that are text although the tokenizer may say special."""
    return frozenset().union(*(marks for marks in _SETS if all(mark in names for mark in marks)))
