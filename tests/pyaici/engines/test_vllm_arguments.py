"""What requests to vLLM say about their controllers."""

from __future__ import annotations

from typing import Any

import pytest

from pyaici.engines.vllm.arguments import LOGITS, OVERLAPPED, ControllerCall


@pytest.mark.parametrize("extra", [None, {}, {"other": 1, "kv_transfer_params": {}}])
def test_a_request_without_a_controller(extra: dict[str, Any] | None) -> None:
    assert ControllerCall.from_extra_args(extra) is None


def test_a_controller_and_its_argument() -> None:
    call = ControllerCall.from_extra_args({"aici_controller": "regex", "aici_arg": "[0-9]+", "other": 1})
    assert call == ControllerCall("regex", "[0-9]+", OVERLAPPED)
    assert ControllerCall.from_extra_args({"aici_controller": "yesno"}) == ControllerCall("yesno")
    path = ControllerCall.from_extra_args({"aici_controller": "yesno", "aici_path": "logits"})
    assert path == ControllerCall("yesno", "", LOGITS)


@pytest.mark.parametrize(
    ("value", "hold"),
    [(True, True), (False, False), ("true", True), ("False", False), (1, True), ("0", False)],
)
def test_held_back(value: Any, hold: bool) -> None:
    call = ControllerCall.from_extra_args({"aici_controller": "yesno", "aici_hold": value})
    assert call == ControllerCall("yesno", hold=hold)


def test_whose_it_is() -> None:
    call = ControllerCall.from_extra_args({"aici_controller": "yesno", "aici_owner": "ann"})
    assert call == ControllerCall("yesno", owner="ann")
    assert call != ControllerCall.from_extra_args({"aici_controller": "yesno"})
    for owner in ("", 7, ["ann"]):
        with pytest.raises(ValueError, match=r"aici_owner is .* must be the name of an owner"):
            ControllerCall.from_extra_args({"aici_controller": "yesno", "aici_owner": owner})


def test_forks_and_events() -> None:
    call = ControllerCall.from_extra_args({"aici_controller": "yesno", "aici_fork": 1, "aici_events": "true"})
    assert call == ControllerCall("yesno", fork=True, events=True) and call.backtrack


def test_values_that_are_no_text_go_as_json() -> None:
    call = ControllerCall.from_extra_args({"aici_controller": "choice", "aici_arg": ["é", "b"]})
    assert call is not None and call.arg == '["é", "b"]'


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"aici_arg": "x"}, "aici_controller must be a bundled .* aici_arg alone"),
        ({"aici_controller": ""}, "it is ''"),
        ({"aici_controller": 3}, "it is 3"),
        ({"aici_controler": "regex"}, "did you mean aici_controller"),
        (
            {"aici_controller": "regex", "aici_zzzzzzzzzz": 1},
            "known are aici_controller, aici_arg, aici_path, aici_hold, aici_fork, aici_events, aici_owner",
        ),
        ({"aici_controller": "regex", "aici_path": "fast"}, "overlapped or logits"),
        ({"aici_controller": "regex", "aici_hold": "maybe"}, "true or false"),
        (
            {"aici_controller": "regex", "aici_hold": 1, "aici_path": "logits"},
            "a logits processor only masks",
        ),
        ({"aici_controller": "regex", "aici_fork": 1, "aici_path": "logits"}, "aici_fork needs"),
        ({"aici_controller": "regex", "aici_hold": 1, "aici_events": 1}, "exclude each other"),
        ({"aici_controller": "regex", "aici_arg": {1, 2}}, "a value that JSON can write"),
    ],
)
def test_what_makes_no_sense(extra: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ControllerCall.from_extra_args(extra)


def test_nothing_runs_without_its_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the seat is not to be had requests are refused, on both paths."""
    from types import SimpleNamespace

    from pyaici.engines.vllm import plugin
    from pyaici.engines.vllm.logits_processor import AiciLogitsProcessor

    free = SimpleNamespace(extra_args=None)
    controlled = SimpleNamespace(extra_args={"aici_controller": "regex", "aici_arg": "a"})
    AiciLogitsProcessor.validate_params(controlled)
    monkeypatch.setenv("VLLM_PLUGINS", "lora_resolver")
    with pytest.raises(ValueError, match=r"VLLM_PLUGINS .* leaves the AICI plugin out"):
        AiciLogitsProcessor.validate_params(controlled)
    monkeypatch.setenv("VLLM_PLUGINS", "aici,lora_resolver")
    AiciLogitsProcessor.validate_params(controlled)
    monkeypatch.delenv("VLLM_PLUGINS")
    monkeypatch.setattr(plugin, "problem", "controllers cannot be used: this vLLM is not as AICI expects it")
    with pytest.raises(ValueError, match="not as AICI expects"):
        AiciLogitsProcessor.validate_params(controlled)
    AiciLogitsProcessor.validate_params(free)
