"""Requests without a controller: every configuration of vLLM equals Transformers, in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.pyaici.engines.vllm.engines import Engines

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


def counter(llm: Any, name: str) -> int:
    return sum(int(metric.value) for metric in llm.get_metrics() if metric.name == f"vllm:{name}")


def test_completions_equal_transformers(llm: Any, reference: Callable[..., list[list[int]]]) -> None:
    assert greedy(llm, PROMPTS, 40) == reference(PROMPTS, 40)


def test_a_chat_equals_transformers(llm: Any, reference: Callable[..., list[list[int]]]) -> None:
    from vllm import SamplingParams

    chat: Any = [{"role": "user", "content": "Name a colour."}]
    (output,) = llm.chat(chat, SamplingParams(temperature=0, max_tokens=30), use_tqdm=False)
    assert [list(output.outputs[0].token_ids)] == reference([chat], 30)


def test_asynchronous_scheduling_changes_no_text(
    engines: Engines, reference: Callable[..., list[list[int]]]
) -> None:
    llm = engines(async_scheduling=True)
    assert llm.llm_engine.vllm_config.scheduler_config.async_scheduling
    scheduler = llm.llm_engine.engine_core.engine_core.scheduler
    assert "Async" in str(type(scheduler).__mro__)
    assert greedy(llm, PROMPTS, 40) == reference(PROMPTS, 40)


def test_preemption_changes_no_text(engines: Engines, reference: Callable[..., list[list[int]]]) -> None:
    """Sixteen blocks of 32 tokens are too few for six sequences of eighty."""
    llm = engines(num_gpu_blocks_override=17)
    animals = ["small dog", "grey cat", "wise owl", "young fox", "shy mouse", "brown bear"]
    prompts = [f"Once upon a time there was a {animal} who" for animal in animals]
    assert greedy(llm, prompts, 70) == reference(prompts, 70)
    assert counter(llm, "num_preemptions") > 0


def test_ngram_drafts_change_no_text(engines: Engines, reference: Callable[..., list[list[int]]]) -> None:
    """Another engine can be made after one with speculative decoding."""
    guess = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3}
    llm = engines(speculative_config=guess)
    again = ["One, two, three, four. One, two, three, four. One,", "a b c d e f g a b c d e f g a b c"]
    assert greedy(llm, again, 24) == reference(again, 24)
    assert counter(llm, "spec_decode_num_accepted_tokens") > 0
    assert greedy(engines(), again[:1], 10) == reference(again[:1], 10)


def test_an_engine_is_reused_only_for_the_same_options(
    engines: Engines, reference: Callable[..., list[list[int]]]
) -> None:
    small = engines(max_num_seqs=2)
    assert engines(async_scheduling=False, max_num_seqs=2) is small
    usual = engines()
    assert usual is not small
    assert usual.llm_engine.vllm_config.scheduler_config.max_num_seqs == 8
    assert greedy(usual, PROMPTS[:1], 10) == reference(PROMPTS[:1], 10)
