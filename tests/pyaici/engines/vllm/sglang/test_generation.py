"""Texts of requests to SGLang's own scheduler code, with controllers as its grammars."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from pyaici.bundled import DESCRIPTIONS
from tests.thorough import also, cases

SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}
TAG = {
    "type": "structural_tag",
    "format": {
        "type": "tag",
        "begin": "<n>",
        "content": {"type": "regex", "pattern": "[0-9]{3}"},
        "end": "</n>",
    },
}
#: SGLang's tool parsers whose calls are not written in JSON
XML_PARSERS = {
    "deepseekv32",
    "deepseekv4",
    "deepseekv41",
    "glm47",
    "kimi_k3",
    "nanbeige",
    "qwen3_coder",
    "step3p5",
}
OLDER_TAG = {
    "type": "structural_tag",
    "structures": [{"begin": "<f=a>", "schema": SCHEMA, "end": "</f>"}],
    "triggers": ["<f="],
    "at_least_one": False,
}


#: a grammar, a script, a controller without one, and one that SGLang's capabilities exclude
FEW = ("regex", "pyctrl", "choice", "beam")


def named(controller: str, arg: Any = "") -> dict[str, str]:
    return {"ebnf": json.dumps({"aici_controller": controller, "aici_arg": arg})}


@pytest.mark.parametrize("name", [*FEW, *also(*sorted(DESCRIPTIONS.keys() - {*FEW, "showcase"}))])
def test_texts_under_bundled_controllers_are_those_of_our_engine(
    sglang: Callable[..., Any], name: str
) -> None:
    arg = DESCRIPTIONS[name][1] or ""
    text, error = sglang("generate_with_ours", name, arg)
    ((theirs, end, message),) = sglang("generate", [named(name, arg)])
    if error is not None:
        assert end == "abort" and message == f"Failed to compile ebnf grammar: {error}"
    else:
        assert theirs == text and end in ("stop", "length")


@pytest.mark.parametrize("overlap", [True, False])
def test_requests_in_a_batch_have_the_texts_that_they_have_alone(
    sglang: Callable[..., Any], overlap: bool
) -> None:
    requests = [
        {},
        {"regex": "[a-z ]{9}!"},
        {"json_schema": json.dumps(SCHEMA)},
        named("choice", ["red", "green"]),
        {"regex": "[0-9]{60}", "max_new_tokens": 20},
        {"ebnf": 'root ::= "a" | "b" "c"+'},
    ]
    alone = [sglang("generate", [each])[0] for each in requests]
    assert sglang("generate", requests, {"overlap": overlap}) == alone
    assert [end for _, end, _ in alone] == ["length", "stop", "stop", "stop", "length", "stop"]


@pytest.mark.parametrize(
    ("grammar", "pattern"),
    [
        ({"json_schema": json.dumps(SCHEMA)}, rb'{\s*"a":\s?[12]\s*}'),
        ({"json_schema": "$$ANY$$", "max_new_tokens": 200}, rb".+"),
        ({"regex": "[a-f]{5}"}, rb"[a-f]{5}"),
        ({"ebnf": 'root ::= "x" [0-9] "y"'}, rb"x[0-9]y"),
        ({"ebnf": 'start: "x" /[0-9]/ "y"'}, rb"x[0-9]y"),
        ({"ebnf": 'start ::= "x" #"[0-9]" "y";'}, rb"x[0-9]y"),
        ({"ebnf": "%%\nstart: 'x' \"/[0-9]/\" 'y' ;"}, rb"x[0-9]y"),
        ({"ebnf": 'root ::= "x" [0-9] "y"', "ebnf_full_assistant": True}, rb"x[0-9]y"),
        ({"structural_tag": json.dumps(TAG)}, rb"<n>[0-9]{3}</n>"),
        ({"structural_tag": json.dumps(OLDER_TAG)}, rb"(?!.*<f=[^a]).*"),
        (named("regex", "[a-f]{5}"), rb"[a-f]{5}"),
        (named("json_schema", SCHEMA), rb'{\s*"a":\s?[12]\s*}'),
    ],
)
def test_each_grammar_of_the_api_is_followed(
    sglang: Callable[..., Any], grammar: dict[str, Any], pattern: bytes
) -> None:
    ((text, end, message),) = sglang("generate", [grammar])
    assert end != "abort", message
    assert re.fullmatch(pattern, text, re.DOTALL)


def test_a_tag_is_followed_after_its_trigger(sglang: Callable[..., Any]) -> None:
    tag = json.loads(json.dumps(OLDER_TAG)) | {"at_least_one": True}
    ((text, _, message),) = sglang("generate", [{"structural_tag": json.dumps(tag)}])
    assert re.match(rb'<f=a>{\s*"a":\s?[12]\s*}</f>', text), message


def test_constraints_of_tool_parsers_are_followed_or_refused(sglang: Callable[..., Any]) -> None:
    found = sglang("tool_constraints")
    refused = {name for name, reason in found.items() if reason}
    assert {"qwen25", "hermes", "llama3", "mistral", "gpt-oss", "kimi_k2"} <= found.keys() - refused
    assert refused == XML_PARSERS | {"beam"}
    assert all("json_schema.style: Input should be 'json'" in found[name] for name in XML_PARSERS)


def test_compact_json_is_an_option_of_the_server(sglang: Callable[..., Any]) -> None:
    schema = {"json_schema": json.dumps(SCHEMA)}
    ((text, end, _),) = sglang("generate", [schema], {"constrained_json_disable_any_whitespace": True})
    assert end == "stop" and re.fullmatch(rb'{"a":[12]}', text)


def test_scripts_come_with_requests(sglang: Callable[..., Any]) -> None:
    script = "from aici import *\nasync def main():\n  await force('n=')\n  await gen(regex='[0-9]{2}')"
    ebnf = json.dumps({"aici_script": {"source": script, "language": "python"}})
    ((text, end, message),) = sglang("generate", [{"ebnf": ebnf}])
    assert end == "stop" and re.fullmatch(rb"n=[0-9]{2}", text), message


def test_a_controller_ends_the_text_even_where_the_model_may_not(sglang: Callable[..., Any]) -> None:
    for more in ({}, {"ignore_eos": True}):
        ((text, end, _),) = sglang("generate", [{"regex": "[a-z]{4}", **more}])
        assert end == "stop" and len(text.rstrip(b"\0")) >= 4 and re.match(rb"[a-z]{4}", text)


@pytest.mark.parametrize("reasoning", [True, False])
def test_controllers_begin_after_the_reasoning(sglang: Callable[..., Any], reasoning: bool) -> None:
    text, end, _ = sglang("think", reasoning)
    assert end == "stop" and re.fullmatch(rb"hm </think>[0-9]{3}" if reasoning else rb"[0-9]{3}", text)


def test_a_first_token_of_another_server_is_followed(sglang: Callable[..., Any]) -> None:
    text, end, message = sglang("prefill_elsewhere")
    assert end == "stop" and re.fullmatch(rb"ab[cd]{5}", text), message


def test_controllers_work_while_the_model_does(sglang: Callable[..., Any]) -> None:
    """Checks that a step for the whole batch is posted before the masks of the next pass are asked for."""
    assert sglang("order_of_work", True) == ["pass", "post", "masks"] * 4
    assert sglang("order_of_work", False) == ["post", "pass", "masks"] * 4


def test_a_pass_can_be_repeated(sglang: Callable[..., Any]) -> None:
    assert [sglang("repeat_a_pass")] == sglang("generate", [{"regex": "[a-z ]{20}!"}])


def test_prepared_controllers_are_ready_at_once(sglang: Callable[..., Any]) -> None:
    ready, ends = sglang("prepare_again")
    assert ready == [False, True, True] and len(set(ends)) == 1


def test_copies_of_a_grammar_have_controllers_of_their_own(sglang: Callable[..., Any]) -> None:
    first, second, fresh, middle = sglang("copies_of_a_grammar")
    assert first == fresh != second == middle


@pytest.mark.parametrize("seed", range(cases(1, 3)))
def test_drafts_do_not_change_texts(sglang: Callable[..., Any], seed: int) -> None:
    requests = [
        {},
        {"regex": "[a-z ]{12}!"},
        {"json_schema": json.dumps(SCHEMA)},
        named("choice", ["red", "green", "blue"]),
        {"regex": "(the cat sat on the mat )+", "max_new_tokens": 24},
        {"ebnf": 'root ::= "a" | "b" "c"+'},
    ]
    texts, accepted = sglang("draft", seed, requests)
    plain = sglang("generate", requests)
    assert texts[1:] == plain[1:] and texts[0][1] == plain[0][1]
    assert accepted > 0


def test_controllers_that_cannot_follow_drafts_are_refused(sglang: Callable[..., Any]) -> None:
    ((_, end, message),), _ = sglang("draft", 0, [named("pyctrl", DESCRIPTIONS["pyctrl"][1])])
    assert end == "abort" and "start SGLang without --speculative-algorithm" in message.replace(
        "Start", "start"
    )
