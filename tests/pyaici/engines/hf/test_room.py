"""Room in the tensors of the cache: a limit that is lowered, the room of kept prefixes, the free memory."""

from __future__ import annotations

from typing import Any

import torch

from aicirt.contract.errors import SpaceError
from aicirt.system.resources import free_bytes
from pyaici import HfEngine, Request
from pyaici.engines.hf.cache import cache_limit
from pyaici.tokens import Vocabulary
from tests.pyaici.engines.batching.support import BOS, make_model

MATE = [BOS, 1, 2, 3, 4, 5, 6]
#: room for four sequences of the tiny model's 256 tokens of context
FOUR = 1024


def test_a_sequence_without_memory_ends_alone(vocabulary: Vocabulary) -> None:
    """The lowered cache limit simulates memory that other processes have taken unexpectedly."""
    model = make_model(max_position_embeddings=2048)
    alone, together = (HfEngine(model, vocabulary=vocabulary) for _ in range(2))
    short = Request(MATE, max_tokens=40)
    (expected,) = alone.run([short])
    mate, long = together.add(short), together.add(Request([7] * 200, max_tokens=500))
    together.step()
    together._runner.cache.limit = FOUR
    for _ in range(30):
        together.step()
    together.add(Request([7] * 600))
    together.run()
    (result,) = together.results(mate)
    assert result.error is None and result.tokens == expected.tokens
    (result,) = together.results(long)
    assert result.error is None and len(result.tokens) == 700, (
        "the sequence must go on once it has the cache for itself"
    )
    (refused,) = together.results(2)
    assert isinstance(refused.error, SpaceError) and refused.new_tokens == []


def test_kept_prefixes_take_a_quarter_of_the_limit(model: Any, vocabulary: Vocabulary) -> None:
    keeper = HfEngine(model, vocabulary=vocabulary, keep=8, cache_tokens=FOUR)
    keeper.run([Request([BOS, i], max_tokens=100) for i in range(4)])
    parked = keeper._runner.cache.parked  # type: ignore[attr-defined]
    assert sum(slot.length for slot in parked) == 2 * 101


def test_the_automatic_limit_fits_the_free_memory(model: Any, vocabulary: Vocabulary) -> None:
    free = free_bytes()
    assert free > 1 << 20
    engine = HfEngine(model, vocabulary=vocabulary, cache_tokens="auto")
    token_bytes = 2 * 2 * 2 * 8 * 4  # layers, keys and values, heads, their size, float32
    assert engine.cache_tokens is not None
    assert 0.1 * free < engine.cache_tokens * token_bytes < free
    assert engine._runner.cache.token_bytes == token_bytes
    assert cache_limit("auto", torch.device("cpu"), 1 << 60) == 1024
