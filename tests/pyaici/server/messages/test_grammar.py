"""Grammars of answers, with the real controller: the texts that they accept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lab.oracles.grammars.walk import Controller
from pyaici.server.apis.messages import Plan, plan
from tests.pyaici.server.messages.bodies import SEED, THINKING, TOOLS, call, calls, request, strings, tool

Make = Callable[[Plan], Controller]

END = "</ai00:assistant>"
TOKYO = call("get_weather", ("location", "Tokyo"))
#: texts that ai00's description of the format calls valid
PATTERNS = {
    "text": f"Hello, how can I help you?\n{END}",
    "thinking and text": f"<think>Let me consider this question...</think>\nThe answer is 42.\n{END}",
    "call": calls(TOKYO),
    "thinking and call": "<think>I should check the weather first.</think>\n" + calls(TOKYO),
    "text and call": "Let me search for that information.\n"
    + calls(call("web_search", ("query", "AI news"))),
    "calls": calls(call("get_weather", ("city", "Tokyo")), call("get_weather", ("city", "London"))),
}
#: other texts with a valid structure
STRUCTURE = {
    "nothing": END,
    "nothing thought": f"<think></think>{END}",
    "an empty value": calls(call("get_weather", ("city", ""))),
    "marks in values": calls(call("get_weather", ("city", "1 < 2 </param <think> <ai00:function_calls>"))),
    "lines in values": calls(call("get_weather", ("city", "a\n\n  b</invoke>\n"))),
    "less than": f"1 < 2, </think> and <ai00:function>\n{END}",
    "several lines": f"a\nb\n\nc{END}",
}
BROKEN = {
    "no end of a text": "Hello",
    "the wrong end": "Hello</ai00:user>",
    "thinking that is not closed": f"<think>Let me see{END}",
    "thinking twice": f"<think>a</think><think>b</think>a{END}",
    "thinking in a text": f"a <think>b</think>{END}",
    "calls that are not closed": f"<ai00:function_calls>\n{TOKYO}",
    "a call that is not closed": calls(TOKYO[: -len("  </invoke>\n")]),
    "a parameter that is not closed": calls(TOKYO.replace("</parameter>", "")),
    "no call": "<ai00:function_calls>\n</ai00:function_calls>",
    "a text after a call": calls(TOKYO + "  done\n"),
    "an end after calls": calls(TOKYO) + END,
    "bad indentation": calls(TOKYO.replace("    <parameter", "  <parameter")),
    "no new line": calls(TOKYO).replace("calls>\n", "calls>", 1),
    "no indentation": calls(TOKYO.replace("  <invoke", "<invoke")),
    "a tool without a name": calls(TOKYO.replace("get_weather", "")),
    "a name that is none": calls(TOKYO.replace("get_weather", "get weather")),
    "single quotes": calls(TOKYO.replace('"', "'")),
    "calls in a text": f"a {calls(TOKYO)} b {END}",
}
#: calls that only schemas exclude
WRONG = {
    "a tool that is none": calls(call("send", ("location", "Tokyo"))),
    "an argument that is none": calls(call("get_weather", ("country", "Japan"))),
    "an argument of another tool": calls(call("get_weather", ("query", "Tokyo"))),
    "no required argument": calls(call("web_search")),
    "an argument twice": calls(call("get_weather", ("location", "a"), ("location", "b"))),
    "another order": calls(call("get_weather", ("city", "a"), ("location", "b"))),
}


def rejected(made: Controller, texts: dict[str, str]) -> list[str]:
    return [name for name, text in texts.items() if not made.accepts(text)]


@pytest.mark.parametrize("level", ["structural", "schema_aware"])
@pytest.mark.parametrize("prompt_format", ["ai00", "template"])
def test_levels_decide_which_texts_are_accepted(grammar: Make, level: Any, prompt_format: Any) -> None:
    made = plan(request(tools=TOOLS, bnf_validation=level), prompt_format=prompt_format)
    controller = grammar(made)
    assert rejected(controller, PATTERNS) == []
    assert rejected(controller, STRUCTURE) == []
    # a model with a chat template ends a text by a token
    ended = {"no end of a text", "the wrong end"} if prompt_format == "template" else set()
    assert rejected(controller, BROKEN) == [name for name in BROKEN if name not in ended]
    assert rejected(controller, WRONG) == (list(WRONG) if level == "schema_aware" else [])
    assert controller.log() == "", "no warning, such as for a rule that is not used"


def test_answer_ends_after_a_complete_text(grammar: Make) -> None:
    controller = grammar(plan(request(tools=TOOLS)))
    for text in PATTERNS.values():
        state = controller.after(text)
        assert state is not None and state.over


def test_seed_grammar_has_known_faults(grammar: Make) -> None:
    """The grammar refuses valid texts that begin with a marker, and accepts malformed calls."""
    controller = grammar(plan(request(tools=TOOLS, **SEED)))
    assert rejected(controller, PATTERNS) == ["call", "calls"]
    assert controller.accepts("\n" + PATTERNS["call"])
    assert controller.accepts("a" + calls(TOKYO)[:-20] + END)
    assert not controller.accepts(STRUCTURE["nothing"])
    assert not controller.accepts("\n" + STRUCTURE["an empty value"])


def test_seed_grammar_allows_calls_without_tools(grammar: Make) -> None:
    made = plan(request(**SEED))
    assert made.answer.form is not None and plan(request(bnf_validation="structural")).answer.form is None
    controller = grammar(made)
    assert controller.accepts("\n" + PATTERNS["call"]) and controller.accepts(PATTERNS["text"])
    thought = grammar(plan(request(**SEED), thought=True))
    assert not thought.accepts(PATTERNS["thinking and text"].partition("\n")[0])


@pytest.mark.parametrize("prompt_format", ["ai00", "template"])
def test_answer_with_an_output_format_is_json(grammar: Make, prompt_format: Any) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    config = {"format": {"type": "json_schema", "schema": schema}}
    made = plan(request(output_config=config), prompt_format=prompt_format)
    assert made.level == "schema_aware" and made.answer.stop == ()
    controller = grammar(made)
    assert controller.accepts('{"a": 1}') and not controller.accepts('<think>so</think>\n{"a": 1}')
    enabled = plan(request(output_config=config, thinking={"type": "adaptive"}), prompt_format=prompt_format)
    begun = "" if enabled.inside else "<think>"
    assert grammar(enabled).accepts(begun + 'so</think>\n{"a": 1}')
    for text in ("Hello." + END, '{"a": "b"}', "{}", '{"a": 1}' + END, calls(TOKYO)):
        assert not controller.accepts(text), text
    both = grammar(plan(request(output_config=config, tools=TOOLS), prompt_format=prompt_format))
    assert both.accepts(calls(TOKYO)) and both.accepts('{"a": 1}')
    assert not both.accepts("Look: " + calls(TOKYO)) and not both.accepts("Hello." + END)
    thought = plan(request(output_config=config), prompt_format=prompt_format, thought=True)
    assert not grammar(thought).accepts('<think>so</think>{"a": 1}')


def test_answer_begins_in_thinking_if_the_prompt_ends_there(grammar: Make) -> None:
    made = plan(request(tools=TOOLS, **THINKING))
    assert made.inside
    controller = grammar(made)
    for text in PATTERNS.values():
        assert controller.accepts(text.removeprefix("<think>") if "<think>" in text else "</think>" + text)
    assert not controller.accepts(PATTERNS["text"])
    outside = plan(request(tools=TOOLS, **THINKING), prompt_format="template")
    assert not outside.inside and rejected(grammar(outside), PATTERNS) == []


@pytest.mark.parametrize("level", ["structural", "schema_aware"])
def test_tool_choice_decides_which_texts_are_accepted(grammar: Make, level: str) -> None:
    def made(choice: Any) -> Controller:
        return grammar(plan(request(tools=TOOLS, tool_choice=choice, bnf_validation=level)))

    search = calls(call("web_search", ("query", "a")))
    always, never, this = made("any"), made("none"), made({"type": "tool", "name": "web_search"})
    assert rejected(always, PATTERNS) == ["text", "thinking and text", "text and call"]
    assert rejected(never, PATTERNS) == ["call", "thinking and call", "text and call", "calls"]
    assert rejected(this, PATTERNS) == list(PATTERNS) and this.accepts(search)
    once = made({"type": "auto", "disable_parallel_tool_use": True})
    assert rejected(once, PATTERNS) == ["calls"]
    for controller in (always, never, this, once):
        assert controller.log() == ""


def test_without_tools_calls_are_refused(grammar: Make) -> None:
    for level in ("structural", "schema_aware"):
        controller = grammar(plan(request(bnf_validation=level)))
        assert rejected(controller, PATTERNS) == ["call", "thinking and call", "text and call", "calls"]


@pytest.mark.parametrize(
    "stops", [["'", "\\", "a.c"], ["\n\n"], ["\r\n\t"], ["[x]", "(", "$^"], ["|"], ["\x00", "é😀"], ["#'a'"]]
)
def test_stop_sequences_may_have_any_characters(grammar: Make, stops: list[str]) -> None:
    controller = grammar(plan(request(stop_sequences=stops, bnf_validation="structural")))
    for stop in stops:
        assert controller.accepts("abc" + stop) and controller.accepts(stop)
        assert controller.after("abc" + stop + "d") is None
    assert not controller.accepts("abc" + END)


def test_without_stop_sequences_a_blank_line_ends_a_text(grammar: Make) -> None:
    made = plan(request(stop_sequences=[], bnf_validation="structural"))
    assert made.answer.stop == ("\n\n",) and grammar(made).accepts("a\nb\n\n")
    assert plan(request(stop_sequences=[])).answer.stop == ()


def test_optional_arguments_may_be_left_out(grammar: Make) -> None:
    schema = strings("a", "b", "c", required=["b"])
    controller = grammar(plan(request(tools=[tool("f", schema)], bnf_validation="schema_aware")))
    for names in ("b", "ab", "bc", "abc"):
        assert controller.accepts(calls(call("f", *((name, "x") for name in names))))
    for names in ("", "a", "c", "ac", "ba", "bb", "cb"):
        assert not controller.accepts(calls(call("f", *((name, "x") for name in names)))), names
    none = grammar(plan(request(tools=[tool("f", {})], bnf_validation="schema_aware")))
    assert none.accepts(calls(call("f"))) and not none.accepts(calls(call("f", ("a", "x"))))


def test_fifty_optional_arguments(grammar: Make) -> None:
    """All arguments are optional, which makes 2^50 combinations."""
    names = [f"argument_{i}" for i in range(50)]
    properties: dict[str, Any] = {
        name: {"type": ("string", "integer", "boolean", "array")[i % 4]} for i, name in enumerate(names)
    }
    tools = [tool(f"tool-{i}", {"type": "object", "properties": properties}) for i in range(3)]
    made = plan(request(tools=tools, bnf_validation="schema_aware"))
    assert len(made.argument) < 50_000
    controller = grammar(made)
    values = [("a", "5", "true", "[1]")[i % 4] for i in range(50)]
    pairs = list(zip(names, values, strict=True))
    for some in (pairs, pairs[::7], pairs[49:], []):
        assert controller.accepts(calls(call("tool-1", *some)))
    assert not controller.accepts(calls(call("tool-1", pairs[1], pairs[0])))
