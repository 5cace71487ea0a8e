"""Prompts: the text for models of ai00, and messages for chat templates."""

from __future__ import annotations

from typing import Any

from pyaici.server.apis.messages.prompt import ai00_prompt, chat_prompt
from tests.pyaici.server.messages.bodies import THINKING, request, tool

WEATHER = tool("get_weather", {"type": "object", "properties": {"location": {"type": "string"}}})
CALL = {
    "type": "tool_use",
    "id": "toolu_1",
    "name": "get_weather",
    "input": {"location": "Tokyo", "days": [1]},
}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": '{"sky": "clear"}'}


def text(**fields: Any) -> str:
    return ai00_prompt(request(**fields))


def chat(**fields: Any) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in chat_prompt(request(**fields))]


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def test_prompt_of_a_question() -> None:
    assert text() == "<ai00:user>\nHi\n</ai00:user>\n\n<ai00:assistant>"
    assert chat() == [("user", "Hi")]


def test_prompt_of_a_conversation() -> None:
    messages = [user("a"), user("b"), assistant("c"), user([{"type": "text", "text": "d"}])]
    assert text(system="Be kind.", messages=messages) == (
        "<ai00:system>\nBe kind.\n</ai00:system>\n\n"
        "<ai00:user>\na\nb\n</ai00:user>\n\n"
        "<ai00:assistant>\nc\n</ai00:assistant>\n\n"
        "<ai00:user>\nd\n</ai00:user>\n\n"
        "<ai00:assistant>"
    )
    assert chat(system="Be kind.", messages=messages) == [
        ("system", "Be kind."),
        ("user", "a\nb"),
        ("assistant", "c"),
        ("user", "d"),
    ]


def test_instructions_between_turns() -> None:
    first, later = ({"role": "system", "content": words} for words in ("Be kind.", "Be brief."))
    messages = [first, user("a"), assistant("b"), later, user("c"), later]
    assert text(messages=messages) == (
        "<ai00:system>\nBe kind.\n</ai00:system>\n\n"
        "<ai00:user>\na\n</ai00:user>\n\n"
        "<ai00:assistant>\nb\n</ai00:assistant>\n\n"
        "<ai00:system>\nBe brief.\n</ai00:system>\n\n"
        "<ai00:user>\nc\n</ai00:user>\n\n"
        "<ai00:system>\nBe brief.\n</ai00:system>\n\n"
        "<ai00:assistant>"
    )
    brief = "<system>\nBe brief.\n</system>"
    assert chat(messages=messages) == [
        *(("system", "Be kind."), ("user", "a"), ("assistant", "b")),
        ("user", f"{brief}\nc\n{brief}"),
    ]


def test_found_tools_and_hidden_thinking() -> None:
    found = {**RESULT, "content": [{"type": "tool_reference", "tool_name": "get_weather"}]}
    hidden = {"type": "redacted_thinking", "data": "secret"}
    for made in (text, lambda messages: str(chat(messages=messages))):
        written = made(messages=[user("a"), assistant([hidden, CALL]), user([found])])
        assert "secret" not in written and written.count("get_weather") == 2


def test_prompt_asks_for_thinking_by_its_budget() -> None:
    for budget, words in (
        (1024, "a bit"),
        (4095, "a bit"),
        (4096, None),
        (16383, None),
        (16384, "a lot"),
    ):
        thinking = {"type": "enabled", "budget_tokens": budget}
        messages = [user("Hi"), assistant("Yes?"), user("Why?")]
        made = text(thinking=thinking, max_tokens=99_999, messages=messages)
        question = "Why? think" + (f" {words}" if words else "")
        assert made.endswith(f"<ai00:user>\n{question}\n</ai00:user>\n\n<ai00:assistant>\n<think>")
        assert "<ai00:user>\nHi\n</ai00:user>" in made
    ((_, system), (_, last)) = chat(**THINKING)
    assert "between <think> and </think>" in system and last == "Hi"


def test_tools_are_described_in_the_system_message() -> None:
    described = """\
<ai00:available_tools>
  <tool name="get_weather">
    {
      "description": "What get_weather does",
      "input_schema": {
        "type": "object",
        "properties": {
          "location": {
            "type": "string"
          }
        }
      },
      "name": "get_weather"
    }
  </tool>
</ai00:available_tools>

To call a function, use this format:
<ai00:function_calls>
  <invoke name="function_name">
    <parameter name="param">value</parameter>
  </invoke>
</ai00:function_calls>"""
    made = text(system="Be kind.", tools=[WEATHER])
    assert made.startswith(f"<ai00:system>\nBe kind.\n\n{described}\n</ai00:system>\n\n<ai00:user>")
    assert text(tools=[WEATHER]).startswith(f"<ai00:system>\n{described}\n</ai00:system>")
    assert chat(tools=[WEATHER])[0] == (
        "system",
        f"{described}\n\nEnd an answer in text with </ai00:assistant>",
    )
    assert chat(tools=[WEATHER], bnf_validation="none")[0] == ("system", described)
    assert "available_tools" not in text(tools=[WEATHER], tool_choice="none")


def test_calls_and_results_are_in_the_assistants_turn() -> None:
    thinking = {"type": "thinking", "thinking": "I should look.", "signature": "s"}
    messages = [
        user("Sky?"),
        assistant([thinking, {"type": "text", "text": "I look."}, CALL]),
        user([RESULT]),
    ]
    calls = """\
<ai00:function_calls>
  <invoke name="get_weather">
    <parameter name="location">Tokyo</parameter>
    <parameter name="days">[1]</parameter>
  </invoke>
</ai00:function_calls>"""
    results = """\
<ai00:function_results>
  <result name="toolu_1">
    {
      "sky": "clear"
    }
  </result>
</ai00:function_results>"""
    begin = f"<ai00:user>\nSky?\n</ai00:user>\n\n<ai00:assistant>\nI look.\n{calls}\n{results}"
    assert text(messages=messages) == begin
    assert text(messages=messages, **THINKING) == begin.replace("Sky?", "Sky? think a bit") + "\n<think>"
    more = [*messages, assistant("It is clear."), user("Thanks")]
    assert text(messages=more) == (
        f"{begin}\nIt is clear.\n</ai00:assistant>\n\n<ai00:user>\nThanks\n</ai00:user>\n\n<ai00:assistant>"
    )
    assert chat(messages=messages) == [
        ("user", "Sky?"),
        ("assistant", f"I look.\n{calls}"),
        ("user", results),
    ]


def test_formatting_of_results() -> None:
    def shown(*results: dict[str, Any], **more: Any) -> str:
        return text(messages=[user("a"), assistant([CALL]), user(list(results))]).partition(
            "<ai00:function_results>"
        )[2]

    assert '\n  <result name="toolu_1" is_error="true">\n    it failed\n      here\n  </result>\n' in shown(
        {**RESULT, "content": "it failed\n  here", "is_error": True}
    )
    blocks = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert "\n    a\n    b\n" in shown({**RESULT, "content": blocks})
    assert "\n    [1\n" in shown({**RESULT, "content": "[1"})
    assert "\n    42\n" in shown({**RESULT, "content": "42"})
    two = shown(RESULT, {"type": "tool_result", "tool_use_id": "toolu_2"})
    assert two.count("<result ") == 2 and two.count("function_results") == 1
    with_text = shown(RESULT, {"type": "text", "text": "And now?"})
    assert with_text.endswith("\nAnd now?\n</ai00:user>\n\n<ai00:assistant>")


def test_arguments_are_written_as_the_grammar_requires() -> None:
    """A string whose schema also allows null is written as JSON, to differ from null."""
    schema = {"properties": {"a": {"type": ["string", "null"]}, "b": {"type": "string"}}}
    use = {"type": "tool_use", "id": "1", "name": "f", "input": {"a": "null", "b": "null", "c": "é"}}
    made = text(tools=[tool("f", schema)], messages=[user("a"), assistant([use])])
    assert '"a">"null"</p' in made and '"b">null</p' in made and '"c">é</p' in made


def test_prompt_continues_an_answer_that_the_request_begins() -> None:
    messages = [user("Hi"), assistant("Hello, ")]
    assert text(messages=messages).endswith("<ai00:assistant>\nHello,")


def test_nested_results_of_tools_do_not_become_huge() -> None:
    nested = "[" * 200 + ",".join(["1"] * 5000) + "]" * 200
    results = [
        {"type": "tool_result", "tool_use_id": f"t{number}", "content": nested} for number in range(20)
    ]
    calls = [{"type": "tool_use", "id": f"t{number}", "name": "f", "input": {}} for number in range(20)]
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": calls},
        {"role": "user", "content": results},
    ]
    assert len(ai00_prompt(request(messages=messages))) < 32 * 20 * len(
        nested
    )  # lines with 400 blanks: 40 MB
