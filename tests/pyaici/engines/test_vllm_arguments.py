"""The options of a request to vLLM that select its controller."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pyaici import bundled
from pyaici.engines.calls import TRUST_OWNERS
from pyaici.engines.engine import Request, Sampling
from pyaici.engines.vllm import frontend
from pyaici.engines.vllm.engine import VllmEngine
from pyaici.engines.vllm.frontend import ControllerCall
from pyaici.engines.vllm.frontend.validation import RequestCheck


@pytest.fixture
def trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients may name owners."""
    monkeypatch.setenv(TRUST_OWNERS, "1")


@pytest.mark.parametrize("extra", [None, {}, {"other": 1, "kv_transfer_params": {}}])
def test_a_request_without_a_controller_has_no_call(extra: dict[str, Any] | None) -> None:
    assert ControllerCall.from_extra_args(extra) is None


def test_a_controller_with_argument() -> None:
    call = ControllerCall.from_extra_args({"aici_controller": "regex", "aici_arg": "[0-9]+", "other": 1})
    assert call == ControllerCall("regex", "[0-9]+")
    assert ControllerCall.from_extra_args({"aici_controller": "yesno"}) == ControllerCall("yesno")


@pytest.mark.parametrize(
    ("value", "hold"),
    [(True, True), (False, False), ("true", True), ("False", False), (1, True), ("0", False)],
)
def test_aici_hold_takes_booleans_and_texts(value: Any, hold: bool) -> None:
    call = ControllerCall.from_extra_args({"aici_controller": "yesno", "aici_hold": value})
    assert call == ControllerCall("yesno", hold=hold)


def test_aici_owner_is_for_trusted_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in (None, "0"):
        monkeypatch.setenv(TRUST_OWNERS, value) if value else monkeypatch.delenv(TRUST_OWNERS, raising=False)
        with pytest.raises(ValueError, match=r"aici_owner is refused, since .* AICI_TRUST_OWNERS=1"):
            ControllerCall.from_extra_args({"aici_controller": "yesno", "aici_owner": "ann"})


def test_aici_owner_must_be_the_name_of_an_owner(trusted: None) -> None:
    call = ControllerCall.from_extra_args({"aici_controller": "yesno", "aici_owner": "ann"})
    assert call == ControllerCall("yesno", owner="ann")
    assert call != ControllerCall.from_extra_args({"aici_controller": "yesno"})
    for owner in ("", 7, ["ann"]):
        with pytest.raises(ValueError, match=r"aici_owner is .* must be the name of an owner"):
            ControllerCall.from_extra_args({"aici_controller": "yesno", "aici_owner": owner})


def test_aici_fork_and_aici_events() -> None:
    call = ControllerCall.from_extra_args({"aici_controller": "yesno", "aici_fork": 1, "aici_events": "true"})
    assert call == ControllerCall("yesno", fork=True, events=True) and call.backtrack


def test_aici_after_thinking() -> None:
    extra = {"aici_controller": "yesno", "aici_after_thinking": "true"}
    assert ControllerCall.from_extra_args(extra) == ControllerCall("yesno", after_thinking=True)


@pytest.mark.parametrize("value", [3, "3"])
def test_a_request_may_begin_with_copies(value: object) -> None:
    extra = {"aici_controller": "yesno", "aici_fork": True, "aici_copies": value}
    assert ControllerCall.from_extra_args(extra) == ControllerCall("yesno", fork=True, copies=3)
    with pytest.raises(ValueError, match="aici_copies needs aici_fork"):
        ControllerCall.from_extra_args({"aici_controller": "yesno", "aici_copies": value})


@pytest.mark.parametrize("value", [0, -1, 1025, 10**9, True, "two", 1.5, None])
def test_other_numbers_of_copies_are_refused(value: object) -> None:
    extra = {"aici_controller": "yesno", "aici_fork": True, "aici_copies": value}
    with pytest.raises(ValueError, match=r"aici_copies is .*; it must be a number from 1 to 1024"):
        ControllerCall.from_extra_args(extra)


def test_arguments_other_than_text_are_encoded_as_json() -> None:
    call = ControllerCall.from_extra_args({"aici_controller": "choice", "aici_arg": ["é", "b"]})
    assert call is not None and call.arg == '["é", "b"]'


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"aici_arg": "x"}, "aici_controller must be a .* missing, but the request has aici_arg"),
        ({"aici_controller": ""}, "it is ''"),
        ({"aici_controller": 3}, "it is 3"),
        ({"aici_controler": "regex"}, "did you mean aici_controller"),
        (
            {"aici_controller": "regex", "aici_zzzzzzzzzz": 1},
            "the keys are aici_controller, aici_arg, aici_script, aici_owner, aici_hold, aici_fork, "
            "aici_events, aici_counts, aici_after_thinking, aici_copies, aici_keep, aici_calls, "
            "aici_name, aici_template",
        ),
        ({"aici_controller": "regex", "aici_hold": "maybe"}, "true or false"),
        ({"aici_controller": "regex", "aici_hold": 1, "aici_events": 1}, "exclude each other"),
        ({"aici_controller": "regex", "aici_counts": 1}, "aici_counts needs aici_events"),
        ({"aici_controller": "regex", "aici_calls": "some token", "aici_name": "me"}, "aici_name is 'me'"),
        ({"aici_controller": "regex", "aici_name": 3}, "aici_name is 3"),
        ({"aici_controller": "regex", "aici_arg": {1, 2}}, "a text or a JSON value"),
    ],
)
def test_invalid_options_are_refused(extra: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ControllerCall.from_extra_args(extra)


SCRIPT = {"language": "python", "source": "async def main():\n    pass\n", "arg": {"é": [1]}}


@pytest.mark.parametrize("value", [SCRIPT, json.dumps(SCRIPT)])
def test_a_script_is_a_controller_and_its_argument(value: Any, trusted: None) -> None:
    call = ControllerCall.from_extra_args({"aici_script": value, "aici_hold": 1, "aici_owner": "ann"})
    assert call is not None
    assert (call.controller, call.hold, call.owner) == ("pyctrl", True, "ann")
    expected = {"script": SCRIPT["source"], "name": "script.py", "arg": SCRIPT["arg"]}
    assert json.loads(call.arg) == expected
    named = {"language": "javascript", "source": "1", "name": "a.js"}
    call = ControllerCall.from_extra_args({"aici_script": named})
    assert call is not None and call.controller == "jsctrl"
    assert json.loads(call.arg) == {"script": "1", "name": "a.js", "arg": None}


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("{", "aici_script: it is a text, but not JSON"),
        ("[1]", "must be an object"),
        (7, "must be an object"),
        ({"source": "x"}, "language is None; it must be python or javascript"),
        ({**SCRIPT, "language": "ruby"}, "language is 'ruby'"),
        ({**SCRIPT, "source": ""}, "source must be a text"),
        ({**SCRIPT, "source": "x" * ((1 << 20) + 1)}, "1048577 characters; at most 1048576"),
        ({**SCRIPT, "source": "\ud800"}, "half of a surrogate pair"),
        ({**SCRIPT, "sorce": ""}, "unknown member sorce: did you mean source"),
        ({**SCRIPT, "name": "a\n"}, "no control characters"),
        ({**SCRIPT, "name": "a" * 257}, "1 to 256 characters"),
        ({**SCRIPT, "arg": {1, 2}}, "arg must be a JSON value"),
        ({**SCRIPT, "arg": float("nan")}, "arg must be a JSON value"),
    ],
)
def test_invalid_scripts_are_refused(script: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ControllerCall.from_extra_args({"aici_script": script})


def test_a_script_excludes_a_controller_and_its_argument() -> None:
    for other in ("aici_controller", "aici_arg"):
        with pytest.raises(ValueError, match=f"aici_script and {other} exclude each other"):
            ControllerCall.from_extra_args({"aici_script": SCRIPT, other: "regex"})


def test_a_missing_interpreter_is_an_error_with_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundled, "FOLDER", tmp_path)
    with pytest.raises(
        ValueError, match=r"aici_script: .* pyctrl was not built.*python -m pyaici\.toolchain"
    ):
        ControllerCall.from_extra_args({"aici_script": SCRIPT})


def params(arg: str | None = None, **changes: Any) -> SimpleNamespace:
    """Returns what the check reads of vLLM's SamplingParams."""
    extra = None if arg is None else {"aici_controller": "regex", "aici_arg": arg}
    options = dict.fromkeys(("prompt_logprobs", "presence_penalty", "bad_words"))
    return SimpleNamespace(**{"extra_args": extra, "n": 1, **options, **changes})


def forks(copies: int) -> dict[str, Any]:
    return {"aici_controller": "regex", "aici_fork": True, "aici_copies": copies}


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (params(extra_args={"aici_controler": "x"}), "did you mean aici_controller"),
        (params("x", prompt_logprobs=1), "prompt_logprobs exclude each other"),
        (params(extra_args=forks(1), bad_words=["y"]), "aici_fork and bad_words"),
        (params(extra_args=forks(3), n=2), r"aici_copies is 3, but the request has only 2 choices \(n\)"),
    ],
)
def test_invalid_requests_are_refused(request_: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        RequestCheck.validate_params(request_)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"beams": 2}, "no beam search"),
        ({"sampling": Sampling(bad_words=((1,),))}, "takes no bad_words"),
        ({"sampling": Sampling(1.0, typical_p=0.5)}, "neither typical_p nor top_n_sigma"),
        ({"sampling": Sampling(1.0, top_n_sigma=2.0)}, "neither typical_p nor top_n_sigma"),
    ],
)
def test_options_that_vllm_lacks_are_refused(options: dict[str, Any], words: str) -> None:
    engine = object.__new__(VllmEngine)  # they are refused before anything of vLLM is needed
    with pytest.raises(ValueError, match=words):
        engine.add(Request("x", **options))


def test_requests_with_a_controller_are_refused_without_the_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    for good in (params("x"), params(bad_words=["y"]), params("x", bad_words=["y"])):
        RequestCheck.validate_params(good)
    for plugins in ("aici", "other,aici"):
        monkeypatch.setenv("VLLM_PLUGINS", plugins)
        RequestCheck.validate_params(params("x"))
    for plugins in ("", "other"):
        monkeypatch.setenv("VLLM_PLUGINS", plugins)
        with pytest.raises(ValueError, match=r"VLLM_PLUGINS .* leaves the AICI plugin out"):
            RequestCheck.validate_params(params("x"))
    monkeypatch.delenv("VLLM_PLUGINS")
    monkeypatch.setattr(frontend, "problem", "AICI does not support this version of vLLM")
    with pytest.raises(ValueError, match="does not support this version"):
        RequestCheck.validate_params(params("x"))
    RequestCheck.validate_params(params())


def test_the_module_of_the_entry_point_imports_no_heavy_packages() -> None:
    program = (
        "import sys; sys.modules['vllm'] = None; from pyaici.engines.vllm.frontend import validation; "
        "assert validation.RequestCheck; "
        "heavy = {'torch', 'numpy', 'msgpack', 'wasmtime', 'transformers'}; "
        "assert not heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_wrong_time_is_reported_where_it_was_set(monkeypatch: pytest.MonkeyPatch) -> None:
    call = {"aici_controller": "yesno"}
    monkeypatch.setenv("AICI_KEEP_BLOCKS_S", "soon")
    with pytest.raises(ValueError, match="variable AICI_KEEP_BLOCKS_S of vLLM's engine is 'soon'"):
        ControllerCall.from_extra_args(call)
    with pytest.raises(ValueError, match=r"^aici_keep is 'later'"):
        ControllerCall.from_extra_args({**call, "aici_keep": "later"})
    assert ControllerCall.from_extra_args({**call, "aici_keep": 3}).keep == 3  # type: ignore[union-attr]
