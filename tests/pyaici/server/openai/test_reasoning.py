"""Reasoning, with the official clients and a model whose template begins the answer with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from lab.servers.tiny_model import make_tiny_model
from lab.system.waiting import PATIENCE
from tests.pyaici.server.serving import Serving

#: turns reasoning off as the template of Qwen3 does
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n<think>\n{% if enable_thinking is false %}\n</think>\n\n{% endif %}"
)
ASK: list[Any] = [{"role": "user", "content": "Is a whale a fish?"}]
BASE: dict[str, Any] = {"model": "default", "messages": ASK, "temperature": 0, "max_tokens": 30}


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server with random weights: it reasons until it is stopped."""
    folder = tmp_path_factory.mktemp("thinker")
    model = make_tiny_model(folder / "model", TEMPLATE)
    options = ("--engine", "hf", "--messages-validation", "schema_aware")
    with Serving(folder / "log", *options, "--model", str(model)) as serving:
        yield serving


@pytest.fixture(scope="module")
def client(thinker: Serving) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{thinker.url}/v1", api_key="none", max_retries=0, timeout=PATIENCE)


def _ask(client: openai.OpenAI, extra: dict[str, Any] | None = None, **options: Any) -> Any:
    body = {"ignore_eos": True, **(extra or {})}
    return client.chat.completions.create(**{**BASE, **options}, extra_body=body)


def test_reasoning_ends_by_force_and_streams_the_same(client: openai.OpenAI) -> None:
    budget = {"thinking_token_budget": 8}
    whole = _ask(client, budget)
    message = whole.choices[0].message
    assert message.reasoning_content and message.reasoning == message.reasoning_content and message.content
    assert whole.usage.completion_tokens == 30 and whole.choices[0].finish_reason == "length"
    texts = {"reasoning_content": "", "reasoning": "", "content": ""}
    for chunk in _ask(client, budget, stream=True):
        for choice in chunk.choices:
            for name in texts:
                texts[name] += getattr(choice.delta, name, None) or ""
    assert texts["reasoning"] == texts["reasoning_content"] == message.reasoning
    assert texts["content"] == message.content
    unlimited = _ask(client, {"thinking_token_budget": -1}).choices[0].message
    assert unlimited.reasoning.startswith(message.reasoning) and not unlimited.content
    hidden = _ask(client, {**budget, "include_reasoning": False}).choices[0].message
    assert not hasattr(hidden, "reasoning") and hidden.content == message.content


def test_schema_applies_after_forced_end_of_reasoning(client: openai.OpenAI) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"enum": ["yes", "no"]}}}
    message = _ask(client, {"thinking_token_budget": 5}, response_format=form).choices[0].message
    assert message.reasoning and json.loads(message.content) in ("yes", "no")


def test_effort_turns_reasoning_off(client: openai.OpenAI) -> None:
    on = _ask(client, reasoning_effort="high")
    off = _ask(client, reasoning_effort="none")
    same = _ask(client, {"chat_template_kwargs": {"enable_thinking": False}})
    assert on.choices[0].message.reasoning and not on.choices[0].message.content
    assert not hasattr(off.choices[0].message, "reasoning") and off.choices[0].message.content
    assert off.usage.prompt_tokens == same.usage.prompt_tokens > on.usage.prompt_tokens
    assert off.choices[0].message.content == same.choices[0].message.content


def test_messages_think_for_a_budget(thinker: Serving) -> None:
    client = anthropic.Anthropic(base_url=thinker.url, api_key="none", max_retries=0)
    options: dict[str, Any] = {
        "model": "default",
        "messages": ASK,
        "max_tokens": 1100,
        "extra_body": {"bnf_schema": "start ::= 'yes' | 'no';"},
    }
    thinking: Any = {"type": "enabled", "budget_tokens": 1024}
    message = client.messages.create(**options, thinking=thinking)
    kinds = [block.type for block in message.content]
    assert kinds in (["thinking", "text"], ["text"]) and message.content[-1].text in ("yes", "no")
    assert message.usage.output_tokens < 1040
    for off in ({}, {"thinking": {"type": "disabled"}}):
        message = client.messages.create(**options, **off)
        assert [block.type for block in message.content] == ["text"]
        assert message.content[0].text in ("yes", "no")


def test_server_may_check_calls_by_default(thinker: Serving) -> None:
    """Random weights would write a random name if only the structure were checked."""
    client = anthropic.Anthropic(base_url=thinker.url, api_key="none", max_retries=0)
    schema = {"type": "object", "properties": {"day": {"enum": [1, 2]}}, "required": ["day"]}
    message = client.messages.create(
        model="default",
        messages=ASK,
        max_tokens=1400,
        thinking={"type": "enabled", "budget_tokens": 1024},
        tools=[{"name": "plan", "input_schema": schema}],  # type: ignore[typeddict-item]
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
    )
    call = message.content[-1]
    assert call.type == "tool_use" and call.name == "plan" and call.input in ({"day": 1}, {"day": 2})
