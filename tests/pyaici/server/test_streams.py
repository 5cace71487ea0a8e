"""Streamed answers equal answers without a stream: text, calls, log-probabilities, usage, finish reason.

The tests use the official clients, the same seed, and edge cases: stop strings within tokens and calls, one
token, empty prompts, other alphabets, several answers at once, controllers that backtrack.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from lab.system.waiting import PATIENCE
from tests.pyaici.server.serving import Serving

WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Oslo", "São Paulo", "東京"]}, "days": {"enum": [1, 2]}},
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    },
}
CLOCK: dict[str, Any] = {"type": "function", "function": {"name": "clock", "description": "What time it is"}}
ONE_CLOCK = {"type": "function", "function": {"name": "clock"}}
#: what a schema may be besides an object with properties
ODD_SCHEMAS: dict[str, Any] = {
    "text": {"type": "string", "maxLength": 4},
    "recursive": {
        "$defs": {"tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 1}},
        "$ref": "#/$defs/tree",
    },
    "names": {
        "type": "object",
        "properties": {"": {"const": 1}, 'a"b\\c\n': {"const": 2}, "عربي": {"const": 3}},
        "required": ["", 'a"b\\c\n', "عربي"],
        "additionalProperties": False,
    },
}
ASK = [{"role": "user", "content": "What is the weather in Oslo?"}]
ALPHABETS = "Write: 😀 👩‍👩‍👧 e\u0301 שלום عربي 日本"
#: a text with characters of several tokens, and combining marks
SPELLED = "naïve 😀👩‍👩‍👧 שלום e\u0301!"

HALF_A_CHARACTER = r"""start ::= '<ai00:function_calls>\n  <invoke name="f">\n'
  '    <parameter name="a">["a\\ud800"]</parameter>\n  </invoke>\n</ai00:function_calls>';"""

COMPLETIONS: dict[str, dict[str, Any]] = {
    "several": {"n": 3, "temperature": 1.0, "logprobs": 2},
    "several prompts": {"prompt": ["One, two,", "Red, green,"], "n": 2, "echo": True, "logprobs": 0},
    "stop within a token": {"prompt": "1, 2, 3,", "temperature": 0, "stop": [", 6", "5,"], "logprobs": 1},
    "stop over tokens": {"prompt": "1, 2, 3,", "temperature": 0, "stop": " 6, 7", "logprobs": 1},
    "stop at once": {"temperature": 0, "stop": list("abcdefghijklmno"), "logprobs": 1},
    "many stops": {"stop": [f"{number}" * 1000 for number in range(10)], "logprobs": 1},
    "one token": {"max_tokens": 1, "logprobs": 5},
    "no prompt": {"prompt": "", "max_tokens": 3},
    "spelled": {"extra_body": {"choice": [SPELLED]}, "max_tokens": 60, "logprobs": 1, "echo": True},
    "spelled and stopped": {
        "extra_body": {"choice": [SPELLED]}, "max_tokens": 60, "stop": SPELLED[9:13], "logprobs": 1,
    },
    "spelled and cut off": {"extra_body": {"choice": ["😀" * 9]}, "max_tokens": 5, "logprobs": 1},
    "taken back": {"extra_body": {"controller": "showcase"}, "max_tokens": 60, "logprobs": 1, "echo": True},
    "taken back and stopped": {
        "extra_body": {"controller": "showcase"}, "max_tokens": 60, "logprobs": 1, "stop": [".", "xyz"],
    },
}  # fmt: skip
CHATS: dict[str, dict[str, Any]] = {
    "several": {"n": 3, "temperature": 1.0, "logprobs": True, "top_logprobs": 2},
    "no words": {"messages": [{"role": "user", "content": ""}], "max_tokens": 3},
    "one token": {"max_tokens": 1, "logprobs": True},
    "stop": {"stop": [" the", "."], "temperature": 0, "logprobs": True},
    "taken back": {"extra_body": {"controller": "showcase"}, "max_tokens": 60, "logprobs": True},
    # not with the seed 9, which draws a token of probability 4e-6: the last digits of float32, which depend
    # on what else is in the batch, decide between that one and its neighbours
    "tools that may be called": {
        "tools": [WEATHER, CLOCK], "n": 3, "seed": 17, "temperature": 1.0, "logprobs": True,
    },
    "tools that must be called": {
        "tools": [WEATHER, CLOCK], "n": 3, "tool_choice": "required", "parallel_tool_calls": False,
        "logprobs": True, "max_tokens": 200,
    },
    "a tool by name": {
        "tools": [WEATHER, CLOCK], "tool_choice": ONE_CLOCK, "parallel_tool_calls": False, "max_tokens": 200,
    },
    "a call with stop strings in it": {
        "tools": [WEATHER], "tool_choice": "required", "parallel_tool_calls": False, "logprobs": True,
        "stop": ["\n", "city", '"', "call>", "<", "Os"], "max_tokens": 100,
    },
    "a call that is cut off": {"tools": [WEATHER], "tool_choice": "required", "max_tokens": 9},
    **{
        f"schema: {name}": {
            "response_format": {
                "type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema},
            },
            "logprobs": True, "max_tokens": 100,
        }
        for name, schema in ODD_SCHEMAS.items()
    },
}  # fmt: skip
MESSAGES: dict[str, dict[str, Any]] = {
    "text": {"max_tokens": 9},
    "no words": {"max_tokens": 1, "messages": [{"role": "user", "content": ""}]},
    "stop": {"max_tokens": 30, "stop_sequences": [" the", "."]},
    "alphabets": {"max_tokens": 9, "messages": [{"role": "user", "content": ALPHABETS}]},
    "spelled": {"max_tokens": 60, "extra_body": {"bnf_schema": f"start ::= '{SPELLED}';"}},
    # a call as a model might write it; here a grammar forces it
    "half a character": {
        "max_tokens": 100,
        "tools": [{"name": "f", "input_schema": {"type": "object", "properties": {"a": {"type": "array"}}}}],
        "extra_body": {"bnf_schema": HALF_A_CHARACTER, "bnf_validation": "none"},
    },
    "tools": {
        "max_tokens": 150,
        "tools": [
            {"name": function["name"], "input_schema": function.get("parameters", {"type": "object"})}
            for function in (WEATHER["function"], CLOCK["function"])
        ],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "stop_sequences": ["Oslo", "city", "\n"],
        "extra_body": {"bnf_validation": "schema_aware"},
    },
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server with the default model; random weights think, but call no tools."""
    options = ("--engine", "hf", "--anonymous", "run", "--requests-per-minute", "0")
    with Serving(tmp_path_factory.mktemp("trained") / "log", *options) as serving:
        yield serving


@pytest.fixture(scope="module")
def client(exact_server: Serving, tokens: dict[str, str]) -> openai.OpenAI:
    return openai.OpenAI(
        base_url=f"{exact_server.url}/v1", api_key=tokens["eve"], max_retries=0, timeout=PATIENCE
    )


def _put_together(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """Combines the chunks of a stream into the answer, as docs/openai.md describes."""
    choices: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        for more in chunk["choices"]:
            empty = {"text": "", "reasoning": "", "calls": [], "logprobs": [], "finish": None}
            choice = choices.setdefault(more["index"], empty)
            assert choice["finish"] is None
            choice["text"] = choice["text"][: len(choice["text"]) - more.get("backtrack", 0)]
            del choice["logprobs"][len(choice["logprobs"]) - more.get("backtrack_tokens", 0) :]
            delta = more.get("delta", more)
            choice["text"] += delta.get("text") or delta.get("content") or ""
            choice["calls"] += [call["function"] for call in delta.get("tool_calls") or ()]
            choice["logprobs"] += _logprobs(more["logprobs"])
            choice["finish"] = more["finish_reason"]
    return {"choices": choices, "usage": _usage(chunks[-1])}


def _whole(answer: dict[str, Any]) -> dict[str, Any]:
    """Converts an answer without a stream to the same form."""
    choices = {}
    for choice in answer["choices"]:
        message = choice.get("message", choice)
        choices[choice["index"]] = {
            "text": message.get("text") or message.get("content") or "",
            "reasoning": message.get("reasoning_content") or "",
            "calls": [call["function"] for call in message.get("tool_calls") or ()],
            "logprobs": _logprobs(choice["logprobs"]),
            "finish": choice["finish_reason"],
        }
    return {"choices": choices, "usage": _usage(answer)}


def _usage(answer: dict[str, Any]) -> dict[str, Any]:
    """Returns the counts without those of the cache, which earlier requests have filled."""
    return {name: count for name, count in answer["usage"].items() if name != "prompt_tokens_details"}


def _logprobs(found: dict[str, Any] | None) -> list[Any]:
    """Returns an entry for each token. Numbers are rounded, since other work may change their last digits."""
    if not found:
        return []
    if "content" in found:
        return [(entry["token"], round(entry["logprob"], 2)) for entry in found["content"]]
    columns = (found["tokens"], found["text_offset"], found["token_logprobs"])
    return [
        # the first token of a prompt has none
        (token, start, value if value is None else round(value, 2))
        for token, start, value in zip(*columns, strict=True)
    ]


def _compare(create: Any, **options: Any) -> dict[str, Any]:
    """Sends the request with and without a stream, and compares the answers."""
    options = {"model": "default", "seed": 7, "max_tokens": 8, **options}
    whole = _whole(create(**options).to_dict(mode="json"))
    stream = create(**options, stream=True, stream_options={"include_usage": True})
    assert _put_together([chunk.to_dict(mode="json") for chunk in stream]) == whole
    for choice in whole["choices"].values():
        (choice["text"] + str(choice["calls"])).encode()
    return whole


@pytest.mark.parametrize("case", COMPLETIONS)
def test_streamed_completions_equal_whole_ones(client: openai.OpenAI, case: str) -> None:
    options = {"prompt": "The capital of France", **COMPLETIONS[case]}
    whole = _compare(client.completions.create, **options)
    for choice in whole["choices"].values():
        if "logprobs" not in options:
            continue
        text, entries = choice["text"], choice["logprobs"]
        # the text has each token at its offset
        starts = [start for _, start, _ in entries]
        assert starts == sorted(starts) and all(start <= len(text) for start in starts)
        for token, start, _ in entries:
            seen = text[start : start + len(token)]
            assert "\N{REPLACEMENT CHARACTER}" in token or token.startswith((seen, "<|"))


@pytest.mark.parametrize("case", CHATS)
def test_streamed_chats_equal_whole_ones(client: openai.OpenAI, case: str) -> None:
    options = {"messages": ASK, **CHATS[case]}
    whole = _compare(client.chat.completions.create, **options)
    if options.get("tool_choice") in ("required", ONE_CLOCK):
        for choice in whole["choices"].values():
            assert bool(choice["calls"]) == (choice["finish"] == "tool_calls"), choice
            assert choice["finish"] == ("length" if "cut off" in case else "tool_calls"), choice


@pytest.mark.parametrize("case", MESSAGES)
def test_streamed_messages_equal_whole_ones(
    request: pytest.FixtureRequest, tokens: dict[str, str], case: str
) -> None:
    server: Serving = request.getfixturevalue("trained" if case == "tools" else "exact_server")
    client = anthropic.Anthropic(
        base_url=f"{server.url}/api", api_key=tokens["eve"], max_retries=0, timeout=PATIENCE
    )
    options: dict[str, Any] = {"model": "default", "messages": ASK, **MESSAGES[case]}
    options["extra_body"] = {"temperature": 0, **options.get("extra_body", {})}
    whole = client.messages.create(**options)
    with client.messages.stream(**options) as stream:
        streamed = stream.get_final_message()
    left_out = {"id": True, "content": {"__all__": {"id"}}}
    assert streamed.model_dump(exclude=left_out) == whole.model_dump(exclude=left_out)
    if "tools" in options:
        (call,) = whole.content
        assert call.type == "tool_use" and whole.stop_reason == "tool_use"
        assert call.name != "f" or call.input == {"a": ["a\N{REPLACEMENT CHARACTER}"]}


def test_stream_of_calls_has_the_events_of_the_whole_message(trained: Serving) -> None:
    tools = [{"name": "clock", "input_schema": {"properties": {"zone": {"enum": ["a", "b"]}}}}]
    body: dict[str, Any] = {"model": "default", "messages": ASK, "max_tokens": 60, "temperature": 0}
    body |= {"tools": tools, "tool_choice": "any", "bnf_validation": "schema_aware"}
    with trained.client() as client:
        whole = client.post("/api/v1/messages", json=body).json()
    events = trained.events("/api/v1/messages", **body, stream=True)
    names = [event["type"] for event in events]
    assert names[:2] == ["message_start", "ping"] and names[-2:] == ["message_delta", "message_stop"]
    written = [
        e["delta"]["partial_json"] for e in events if e.get("delta", {}).get("type") == "input_json_delta"
    ]
    calls = [block for block in whole["content"] if block["type"] == "tool_use"]
    assert [json.loads(text) for text in written] == [call["input"] for call in calls] != []


def test_usage_is_the_same_on_all_routes(client: openai.OpenAI, exact_server: Serving) -> None:
    """The answer is of a controller that backtracks."""
    options = {"controller": "showcase", "prompt": "Hello", "max_tokens": 60, "temperature": 0, "seed": 1}
    events = exact_server.events(**options)
    forks = [fork for event in events for fork in event.get("forks", []) if "pieces" in fork]
    pieces = [piece for fork in forks if fork["index"] == 0 for piece in fork["pieces"]]
    run = sum(len(piece.get("tokens", ())) - piece.get("backtrack", 0) for piece in pieces)
    assert any("backtrack" in piece for piece in pieces)
    extra = {"controller": "showcase"}
    answer = client.completions.create(
        model="default", prompt="Hello", max_tokens=60, temperature=0, seed=1, logprobs=0, extra_body=extra
    )
    assert answer.usage is not None and answer.choices[0].logprobs is not None
    assert answer.usage.completion_tokens == run == len(answer.choices[0].logprobs.tokens or ())
