"""Controllers that begin after the thinking of a reasoning model (`aici_after_thinking`).

vLLM's reasoning parser finds the end of the thinking, as it does for vLLM's own grammars. Until then the
request has no constraint and no running controller.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aicirt.contract.errors import ArgumentError


def begin_thinking(manager: Any, request: Any) -> None:
    """Makes vLLM's StructuredOutputManager wait for the end of the thinking.

    The request has a controller's grammar (see `hold`). Raises ArgumentError if the engine finds no end.
    """
    if manager.reasoner_cls is None:
        raise ArgumentError(
            "aici_after_thinking needs a reasoning parser, which finds the end of the thinking: start the "
            "engine with --reasoning-parser (offline: reasoning_parser=...), or leave aici_after_thinking out"
        )
    if manager.enable_in_reasoning:
        raise ArgumentError(
            "aici_after_thinking excludes the engine's option enable_in_reasoning: leave one of them out"
        )
    request.structured_output_request.reasoning_ended = None
    manager._get_reasoner(request)


def thinks(manager: Any, request: Any) -> bool:
    """Returns whether a new request begins with its thinking. The end of its prompt may say otherwise."""
    thinking: bool = manager._get_constraint_bounds(request, ()).constraint_start > 0
    if not thinking:
        request.structured_output_request.reasoning_ended = True
    return thinking


def tokens_of_thinking(manager: Any, request: Any, tokens: Sequence[int]) -> int | None:
    """Returns how many of the sampled tokens belong to the thinking; None if it goes on after all of them.

    `tokens` are not yet part of the request.
    """
    start: int = manager._get_constraint_bounds(request, tokens).grammar_start
    if start > len(tokens):
        return None
    request.structured_output_request.reasoning_ended = True
    return start
