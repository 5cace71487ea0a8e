"""Answers between which tools are called: their plans in every family of models, and the order of events."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from pyaici.engines.engine import Backtracked, Finished, FinishReason, Origin, Started, TokensAppended
from pyaici.engines.turns import with_turns
from pyaici.server.answers.calls import ToolCalled, ToolEnded
from pyaici.server.answers.reader import Reasoning, Text, open_reader
from pyaici.server.answers.tools import CALLS_OF_ANSWER, NEXT_ANSWER, _Answers, round_of
from pyaici.server.apis.openai.chat_plan import ChatPlan, plan_chat
from pyaici.server.apis.openai.requests import ChatRequest
from pyaici.server.http.errors import ApiError
from pyaici.server.http.users import Role, User
from pyaici.server.scheduling.streams import CallEnded, CallMade
from pyaici.tools.settings import OfferedTools
from tests.pyaici.server.openai.byte_model import byte_model
from tests.pyaici.server.openai.templates import TEMPLATES
from tests.pyaici.server.openai.test_reasoning import TEMPLATE as THINKING

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False}
SERVERS = {"calc": OfferedTools([{"name": "calc.add", "description": "Adds", "schema": SCHEMA}])}
#: families whose templates take no result of a tool in its place
AS_USER = {"Mistral-Nemo", "Mistral-Small-3.1", "Mistral-Small-3.2"}
#: and those whose calls we write
AS_USER |= {"Gemma-2", "Gemma-3", "Phi-4-mini", "Command-R", "SmolLM2", "SmolLM3"}


def _plan(template: str, **fields: Any) -> tuple[ChatPlan, dict[str, Any]]:
    """Returns the plan of a chat with tools of a server, and the argument of its script."""
    model = byte_model(template)
    model = replace(model, vocabulary=with_turns(model.vocabulary, model.tokenizer))
    body = {
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [{"type": "mcp", "server_label": "calc"}],
    }
    request = ChatRequest.model_validate({**body, **fields})
    plan = plan_chat(model, request, User("eve", Role.RUN), SERVERS)
    assert plan.job.controller is not None
    return plan, json.loads(plan.job.controller.arg)["arg"]


@pytest.mark.parametrize("name", TEMPLATES)
def test_results_have_the_place_that_the_template_has_for_them(name: str) -> None:
    plan, argument = _plan(TEMPLATES[name], max_tokens=5, max_tool_calls=2)
    assert argument["results"] == ("user" if name in AS_USER else "tool")
    assert (argument["max_tokens"], argument["max_calls"]) == (5, 2)
    assert plan.loop is not None and plan.loop.later.start == plan.answer.start, "the model thinks each time"
    assert plan.answer.form is not None and "add" in argument["grammars"]["next"]
    assert "add" not in argument["grammars"]["last"]


def test_required_call_is_required_once() -> None:
    _, argument = _plan(TEMPLATES["Qwen2.5"], tool_choice="required")
    assert argument["grammars"]["first"] != argument["grammars"]["next"]
    _, argument = _plan(TEMPLATES["Qwen2.5"])
    assert argument["grammars"]["first"] == argument["grammars"]["next"]


def test_chat_that_cannot_grow_and_budgets_are_refused() -> None:
    with pytest.raises(ApiError, match="chats cannot grow"):
        _plan("{% for m in messages %}{{ m.content | upper }}{% endfor %}")
    with pytest.raises(ApiError, match="thinking_token_budget cannot be combined"):
        _plan(THINKING, thinking_token_budget=5)


def _append(text: str, origin: Origin = Origin.SAMPLED) -> TokensAppended:
    return TokensAppended(0, 0, [1] * len(text), text, origin)


def _ask(name: str, **arguments: Any) -> CallMade:
    return CallMade(-1, -1, f"id of {name}", name, json.dumps(arguments), True)


def test_answers_are_read_one_after_another() -> None:
    plan, _ = _plan(TEMPLATES["DeepSeek-R1"])
    assert plan.loop is not None and plan.answer.form is not None
    service: Any = SimpleNamespace(model=byte_model(TEMPLATES["DeepSeek-R1"]))
    answers = _Answers(service, plan.job, plan.loop, open_reader(plan.answer))
    written = "Hm.</think>One." + plan.answer.form.write([("add", {"a": 1})])
    size = len(written)
    steps: list[list[Any]] = [
        [Started(0, 0, [5], "prompt")],
        [_append(written[:-1])],
        [
            _ask(CALLS_OF_ANSWER, at=size, finish_reason="complete")
        ],  # before the engine has reported all tokens
        [_append(written[-1])],
        [CallMade(-1, -1, "1", "calc.add", '{"a": 1}', False)],
        [CallEnded(-1, -1, "1", "tool", 0.1, 9, '{"error": {"code": "tool", "message": "no"}}')],
        [CallMade(-1, -1, "2", "other.add", "{}", False), CallEnded(-1, -1, "2", "", 0.1, 9, '{"value": 1}')],
        [Backtracked(0, 0, 1, "x"), _append("x the result, and <think>", Origin.FORCED)],
        [_ask(NEXT_ANSWER, at=size + 24)],
        [_append("So.</think>Two.")],
        [Finished(0, 0, FinishReason.STOP, None)],
    ]
    found: list[Any] = []
    read, finish, replies = 0, None, []
    for step in steps:
        for delta in answers.follow(step):
            found += [*delta.events, *delta.tools]
            read += delta.read
            assert finish is None
            finish = delta.finish
        replies += list(answers.replies())
    texts = "".join(event.text for event in found if isinstance(event, Text))
    assert texts == "One.Two."
    assert "".join(event.text for event in found if isinstance(event, Reasoning)) == "Hm.So."
    called = [event for event in found if isinstance(event, ToolCalled | ToolEnded)]
    id = called[0].id
    assert round_of(id) and called == [
        ToolCalled(id, "calc", "add", '{"a": 1}'),
        ToolEnded(id, error=("tool", "no")),
    ]
    wanted = {"call": "calc.add", "name": "add", "arguments": {"a": 1}}
    assert replies == [
        (f"id of {CALLS_OF_ANSWER}", {"calls": [wanted], "more": True}),
        (f"id of {NEXT_ANSWER}", None),
    ]
    assert finish == "stop" and read == 24
