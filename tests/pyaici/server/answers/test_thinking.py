"""Thinking is turned on and off by the template, and ended by force when its tokens are used up."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from pyaici.engines.engine import Sampling
from pyaici.server.answers.plan import AnswerPlan, Marks, Start
from pyaici.server.answers.reader import open_reader
from pyaici.server.answers.thinking import (
    ThinkingLimit,
    limited_deltas,
    opens_thinking,
    switches,
    takes_effort,
    template_variables,
)
from pyaici.server.apis.messages.routes import _read
from pyaici.server.service import Service
from tests.pyaici.server.messages.bodies import THINKING, request
from tests.pyaici.server.openai.byte_model import byte_model
from tests.pyaici.server.small import USER, job, small_service

FORCED = "\n</think>\n\n"


async def _read_limited(service: Service, inside: bool, tokens: int, max_tokens: int) -> tuple[str, int, Any]:
    """Returns the text, the number of tokens and the finish reason of an answer with a limit on thinking."""
    begun = replace(job(20, max_tokens), sampling=Sampling(0.0, ignore_eos=True))
    limit = ThinkingLimit(tokens, begun)
    reader = open_reader(AnswerPlan(Start(Marks(), open=inside)))
    text, count, finish = "", 0, None
    async for delta in limited_deltas(service, begun, limit, reader):
        text, count, finish = text + delta.text, count + delta.grown, delta.finish
    return text, count, finish


def test_thinking_ends_by_force() -> None:
    asyncio.run(_limits())


async def _limits() -> None:
    async with small_service() as service:
        text, count, finish = await _read_limited(service, True, 30, 60)
        thought, mark, rest = text.partition(FORCED)
        assert mark and thought and rest and (count, finish) == (60, "length")
        free, count, finish = await _read_limited(service, False, 30, 60)
        assert FORCED not in free and (count, finish) == (60, "length")
        assert free.startswith(thought)
        text, _, _ = await _read_limited(service, True, 0, 60)
        assert text.startswith(FORCED)
        # the forced text itself may use up the answer
        text, count, finish = await _read_limited(service, True, 30, 35)
        assert text.endswith(FORCED) and finish == "length"


# the same with fewer tokens in test_thinking_ends_by_force, and through HTTP in openai/test_reasoning.py
@pytest.mark.thorough
def test_messages_have_a_budget_of_thinking() -> None:
    asyncio.run(_budget())


async def _budget() -> None:
    async with small_service(max_tokens=2000) as service:
        body = request(**THINKING, bnf_validation="none", temperature=0)
        message = await _read(service, body, USER).whole()
    kinds = [block["type"] for block in message["content"]]
    assert kinds[:2] == ["thinking", "text"] and message["stop_reason"] in ("max_tokens", "end_turn")
    assert message["usage"]["output_tokens"] > 1024


@pytest.mark.parametrize(
    ("template", "variables", "effort"),
    [
        (
            "{% if enable_thinking is defined and not enable_thinking %}x{% endif %}",
            ["enable_thinking"],
            False,
        ),
        (
            "{% if thinking %}<think>{% endif %}{% for m in messages %}{{ m }}{% endfor %}",
            ["thinking"],
            False,
        ),
        ("{% set thinking = 1 %}Reasoning: {{ reasoning_effort }}", [], True),
        ("thinking reasoning_effort", [], False),
        ("{% broken", [], False),
    ],
)
def test_variables_of_templates(template: str, variables: list[str], effort: bool) -> None:
    model = byte_model(template)
    assert list(switches(model, False)) == variables and takes_effort(model) == effort
    assert template_variables(template) >= set(variables)


def test_prompts_may_end_within_thinking() -> None:
    model = byte_model("x")
    for text, inside in (("a<think>\n", True), ("<think>", True), ("<think>a", False), ("", False)):
        assert opens_thinking(model, model.encode(text)) == inside if text else True
