"""SGLang loads the plugin, and the grammar backend refuses options that it cannot serve."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from packaging.specifiers import SpecifierSet

from pyaici.engines.sglang import VERSIONS
from tests.pyaici.engines.vllm.sglang.stand_ins import VERSION


def test_sglang_finds_the_backend_by_its_entry_point(sglang: Callable[..., Any]) -> None:
    choices, ours, chosen = sglang("registered")
    assert (
        chosen == "aici" and choices.count("aici") == 1 and {"xgrammar", "llguidance"} < set(choices) and ours
    )
    assert SpecifierSet(VERSIONS).contains(VERSION)


def test_another_version_of_sglang_runs_without_the_backend(sglang: Callable[..., Any]) -> None:
    registered, said = sglang("register_another_version", "0.6.0")
    assert not registered and "this is SGLang 0.6.0" in said and VERSIONS in said


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, ""),
        (
            {"tp_size": 2, "attn_tp_size": 2, "moe_tp_size": 2},
            "excludes tensor, context and pipeline parallelism",
        ),
        ({"pp_size": 2}, "excludes tensor, context and pipeline parallelism"),
        ({"enable_strict_thinking": True}, "does not support --enable-strict-thinking"),
        (
            {"constrained_json_whitespace_pattern": "[ ]*"},
            "does not support --constrained-json-whitespace-pattern",
        ),
    ],
)
def test_options_that_cannot_be_served_are_refused_at_the_start(
    sglang: Callable[..., Any], options: dict[str, Any], reason: str
) -> None:
    assert reason in sglang("start", options) and bool(reason) == bool(sglang("start", options))
