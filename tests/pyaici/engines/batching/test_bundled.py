"""Greedy texts under every bundled controller are those of a client without an engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from pyaici.bundled import DESCRIPTIONS
from pyaici.client.runtime import Runtime
from pyaici.engines.engine import Request, Sampling
from pyaici.testing.playground import PATIENT
from pyaici.tokens import Vocabulary
from tests.pyaici.engines.batching.by_hand import generate_by_hand
from tests.pyaici.engines.batching.support import BOS, make_engine

PROMPT = [BOS, *b"Say something"]
TOKENS = 40


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with Runtime(workers=1, limits=PATIENT) as runtime:
        yield runtime


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_greedy_texts_equal_those_of_a_client_by_hand(
    runtime: Runtime, model: Any, hf_model: Any, vocabulary: Vocabulary, name: str
) -> None:
    """The client asks the library's model for logits, without a cache."""

    @torch.no_grad()
    def logits(tokens: list[int]) -> NDArray[np.float32]:
        line = hf_model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, -1]
        line[len(vocabulary.tokens) :] = -torch.inf
        found: NDArray[np.float32] = line.numpy()
        return found

    engine = make_engine(model, runtime=runtime, vocabulary=vocabulary)
    arg = DESCRIPTIONS[name][1] or ""
    request = Request(PROMPT, name, arg, sampling=Sampling(0.0, seed=3), max_tokens=TOKENS)
    results = engine.run([request])
    assert [result.error for result in results] == [None] * len(results)
    wanted = generate_by_hand(
        logits, runtime, name, arg, PROMPT, max_tokens=TOKENS, ends=vocabulary.eos, seed=3
    )
    assert sorted(result.new_tokens for result in results) == wanted
    assert any(wanted)
