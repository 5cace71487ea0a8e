"""Requests without a controller: every configuration of vLLM equals Transformers, in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.pyaici.engines.vllm.configurations import ConfiguredEngines
from tests.pyaici.engines.vllm.requests import counter

pytestmark = pytest.mark.slow

PROMPTS = [
    "The capital of France is",
    "Once upon a time there was a small dog who",
    "def fibonacci(n):\n",
    "List three colours:",
]


def greedy(llm: Any, prompts: list[str], max_tokens: int) -> list[list[int]]:
    from vllm import SamplingParams

    outputs = llm.generate(prompts, SamplingParams(temperature=0, max_tokens=max_tokens), use_tqdm=False)
    return [list(output.outputs[0].token_ids) for output in outputs]


@pytest.mark.parametrize("configuration", ["async", "sync"])
def test_completions_equal_transformers(
    llm: Any, configuration: str, reference: Callable[..., list[list[int]]]
) -> None:
    scheduler = llm.llm_engine.engine_core.engine_core.scheduler
    assert ("Async" in str(type(scheduler).__mro__)) == (configuration == "async")
    assert greedy(llm, PROMPTS, 40) == reference(PROMPTS, 40)


def test_a_chat_equals_transformers(llm: Any, reference: Callable[..., list[list[int]]]) -> None:
    from vllm import SamplingParams

    chat: Any = [{"role": "user", "content": "Name a colour."}]
    (output,) = llm.chat(chat, SamplingParams(temperature=0, max_tokens=30), use_tqdm=False)
    assert [list(output.outputs[0].token_ids)] == reference([chat], 30)


@pytest.mark.parametrize("configuration", ["async-preempted", "sync-preempted"])
def test_preemption_changes_no_text(llm: Any, reference: Callable[..., list[list[int]]]) -> None:
    """17 blocks of 32 tokens are too few for nine sequences of eighty."""
    animals = ("dog", "cat", "owl", "fox", "mouse", "bear", "horse", "duck", "wolf")
    prompts = [f"Once upon a time there was a small {animal} who" for animal in animals]
    before = counter(llm, "num_preemptions")
    assert greedy(llm, prompts, 70) == reference(prompts, 70)
    assert counter(llm, "num_preemptions") > before


@pytest.mark.configuration("drafts")
def test_ngram_drafts_change_no_text(llm: Any, reference: Callable[..., list[list[int]]]) -> None:
    again = ["One, two, three, four. One, two, three, four. One,", "a b c d e f g a b c d e f g a b c"]
    before = counter(llm, "spec_decode_num_accepted_tokens")
    assert greedy(llm, again, 24) == reference(again, 24)
    assert counter(llm, "spec_decode_num_accepted_tokens") > before


def test_an_engine_is_made_once(llm: Any, engines: ConfiguredEngines) -> None:
    assert engines("async") is llm
    assert llm.llm_engine.vllm_config.scheduler_config.async_scheduling
