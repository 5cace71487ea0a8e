"""Failures of requests, controllers and the runtime end only their own requests, with the reason."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyaici.client.runtime import Runtime
from pyaici.toolchain import build_controller
from tests.pyaici.engines.vllm.sglang.test_generation import named
from tests.thorough import also, cases

GUESTS = Path(__file__).resolve().parents[4] / "guests"
BYSTANDER = {"regex": "[a-z ]{20}!"}


@pytest.fixture(scope="module")
def guests(runtime: Runtime, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Controllers that do what their argument says, under the tags sglang_guest and sglang_nudge."""
    for name in ("guest.c", "nudge.cpp"):
        built = build_controller(GUESTS / name, tmp_path_factory.mktemp("guests") / "guest.wasm").path
        runtime.tag(runtime.upload(built).id, f"sglang_{name.partition('.')[0]}")


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"regex": "("}, "Failed to compile regex grammar: the regular expression is refused at column 1"),
        ({"json_schema": "{"}, "json is not JSON"),
        ({"json_schema": '{"type": "no"}'}, "type"),
        ({"json_schema": "[" * 100_000}, "json is not JSON: nested too deeply"),
        ({"json_schema": '{"maximum": 1e999}'}, "is too large"),
        ({"ebnf": "root ::= ("}, "not the end of the grammar"),
        ({"ebnf": "{"}, "ebnf is not JSON"),
        ({"ebnf": "{}"}, "names a controller"),
        ({"ebnf": '{"aici_controller": ""}'}, "aici_controller must be a bundled controller's name"),
        ({"ebnf": '{"aici_controller": "regex", "arg": 1}'}, "it has the key 'arg'"),
        ({"ebnf": '{"aici_controler": "regex"}'}, "did you mean aici_controller?"),
        (
            {"ebnf": '{"aici_controller": "regex", "aici_hold": true}'},
            "the request has the unknown key aici_hold",
        ),
        (named("nobody"), "nobody"),
        (named("../../etc/passwd"), "etc/passwd"),
        (named("choice", [1]), "choice"),
        ({"structural_tag": "7"}, "structural_tag: "),
        ({"structural_tag": '{"format": {"type": "any_texts"}}'}, "structural_tag.format"),
        (
            {"structural_tag": json.dumps({"format": {"type": "grammar", "grammar": "x"}})},
            "structural_tag.format",
        ),
        ({"ebnf": '{"aici_script": {"source": "(", "language": "python"}}'}, "SyntaxError"),
    ],
)
def test_invalid_requests_are_refused_with_the_reason(
    sglang: Callable[..., Any], request_: dict[str, Any], message: str
) -> None:
    refused, other = sglang("generate", [request_, BYSTANDER])
    assert refused[1] == "abort" and message in refused[2], refused
    assert other[1] == "stop" and len(other[0]) == 21


@pytest.mark.parametrize(
    ("controller", "arg", "message"),
    [
        ("sglang_nudge", "trap 3", "unreachable"),
        ("sglang_nudge", "loop 3", "ms"),
        ("sglang_nudge", "sparse 65 1.0", "does not support SPARSE or DENSE rows"),
        ("sglang_guest", "splice 1", "backtrack"),
        ("sglang_guest", "fork 2", "fork"),
        ("sglang_guest", "suspend", "suspend"),
        ("sglang_guest", "temperature 5", "SGLang cannot apply"),
        ("sglang_guest", "mid_bad_kind", "kind"),
        ("sglang_guest", "mid_empty_mask", "no token"),
        ("sglang_guest", "splice_nothing", "rounds"),
        ("sglang_guest", "prompt_refuse", ""),
    ],
)
def test_a_failing_controller_ends_its_own_request(
    sglang: Callable[..., Any], guests: None, controller: str, arg: str, message: str
) -> None:
    failed, other = sglang("generate", [named(controller, arg), BYSTANDER])
    assert failed[1] == "abort" and message in failed[2], failed
    assert other == sglang("generate", [BYSTANDER])[0]


@pytest.mark.parametrize("seed", range(cases(1, 3)))
@pytest.mark.parametrize(
    ("arg", "message"), [("trap 5", "unreachable"), ("stop 5", ""), *also(("loop 5", "ms"))]
)
def test_a_controller_that_fails_on_a_draft_ends_its_request_once_it_is_accepted(
    sglang: Callable[..., Any], guests: None, seed: int, arg: str, message: str
) -> None:
    plain = sglang("generate", [named("sglang_nudge", arg)])[0]
    (failed, other), _ = sglang("draft", seed, [named("sglang_nudge", arg), BYSTANDER])
    assert failed[1] == plain[1] and message in failed[2]
    assert failed[0][:4] == plain[0][:4] and other == sglang("generate", [BYSTANDER])[0]


def test_a_controller_may_stop(sglang: Callable[..., Any], guests: None) -> None:
    ((text, end, _),) = sglang("generate", [named("sglang_nudge", "stop 4")])
    assert end == "stop" and len(text) == 3


def test_a_splice_is_forced_token_by_token(sglang: Callable[..., Any], guests: None) -> None:
    ((text, end, _),) = sglang("generate", [named("sglang_nudge", "say 0123456789")])
    assert end == "length" and text[1:11] == b"0123456789"


def test_a_refusal_is_not_remembered(sglang: Callable[..., Any], tmp_path: Path) -> None:
    wasm = build_controller(GUESTS / "nudge.cpp", tmp_path / "nudge.wasm").path.read_bytes()
    first, second = sglang("upload_between", f"late-{secrets.token_hex(4)}", wasm)
    assert first[1] == "abort" and second[1] == "stop"


def test_requests_after_the_end_of_a_runtime_get_another_one(sglang: Callable[..., Any]) -> None:
    free, regex, again = sglang("kill_the_runtime")
    assert (
        free[1] == "length" and regex[1] == "abort" and regex[2].startswith("Grammar accept_token failed: ")
    )
    assert again[1] == "stop" and len(again[0]) == 31


def test_aborted_requests_leave_no_controllers(sglang: Callable[..., Any]) -> None:
    ends, live = sglang("abort")
    assert [end for _, end, _ in ends] == ["abort"] * 3 and live == 0


def test_owners_are_for_trusted_servers(sglang: Callable[..., Any]) -> None:
    ((_, end, message),) = sglang("owners", False)
    assert end == "abort" and "AICI_TRUST_OWNERS=1" in message
    assert sglang("owners", True) == [(b"a", "stop", "")]
