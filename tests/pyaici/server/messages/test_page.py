"""The examples of docs/messages.md are correct."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from lab.oracles.grammars.walk import Controller
from pyaici.server.apis.messages import Plan, parse_request, plan
from pyaici.server.apis.messages.prompt import ai00_prompt
from tests.pyaici.server.messages.bodies import TOOLS, call, calls, request, tool

PAGE = (Path(__file__).parents[4] / "docs" / "messages.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def squeezed(text: str) -> str:
    return re.sub(r" +", " ", text).strip()


def test_example_request_and_its_calls(grammar: Callable[[Plan], Controller]) -> None:
    request_body, answer, failed = (json.loads(block) for block in blocks("json"))
    made = plan(parse_request(request_body))
    (use,) = [block for block in answer["content"] if block["type"] == "tool_use"]
    hours = json.dumps(use["input"]["hours"])
    controller = grammar(made)
    assert controller.accepts(calls(call("forecast", ("place", "Oslo"), ("hours", hours))))
    assert controller.accepts(calls(call("forecast", ("place", "Oslo"), ("day", "2024-02-29"))))
    assert not controller.accepts(calls(call("forecast", ("place", "Oslo"), ("day", "tomorrow"))))
    assert failed["error"]["message"] == "top_k must be greater than 0"


def test_example_grammar() -> None:
    (shown,) = blocks("kbnf")
    assert squeezed(shown) == squeezed(plan(request(tools=TOOLS)).argument)


def test_example_error(grammar: Callable[[Plan], Controller]) -> None:
    schema = {"properties": {"day": {"type": "string", "format": "date_time"}}}
    made = plan(request(tools=[tool("forecast", schema)], bnf_validation="schema_aware"))
    assert made.refused(grammar(made).refusal()).message == blocks("text")[1].strip()


def test_example_prompt() -> None:
    use = {"type": "tool_use", "id": "toolu_1", "name": "forecast", "input": {"place": "Oslo"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "Rain."}
    messages = [
        {"role": "user", "content": "Do I need an umbrella?"},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
    ]
    described = {**tool("forecast", {"type": "object"}), "description": "The weather of a day"}
    prompt = ai00_prompt(request(system="Be brief.", tools=[described], messages=messages))
    assert isinstance(prompt, str)
    pattern = re.escape(blocks("text")[0].strip()).replace(r"\.\.\.", ".*?")
    assert re.fullmatch(pattern, prompt, re.DOTALL)
