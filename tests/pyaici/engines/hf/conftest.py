"""Fixtures: the tiny model, its vocabulary, an engine with it, and the library's own generation with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pyaici.engines.hf import HfEngine
from pyaici.tokens import Vocabulary
from tests.pyaici.engines.hf.support import BOS, EOS, WIDTH, make_model


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
    """A token for each byte, and two special tokens. The other ids are no tokens."""
    names = {BOS: "<s>", EOS: "</s>"}
    return Vocabulary(
        [bytes([i]) for i in range(256)] + [b"", b""], names, eos=(EOS,), bos=BOS, vocab_size=WIDTH
    )


@pytest.fixture(scope="session")
def model() -> Any:
    return make_model()


@pytest.fixture
def engine(model: Any, vocabulary: Vocabulary) -> HfEngine:
    """An engine without controllers."""
    return HfEngine(model, vocabulary=vocabulary)


@pytest.fixture(scope="session")
def generate(model: Any) -> Callable[..., list[int]]:
    """Generates greedily for one prompt with the library. Ids that are no tokens are never chosen."""

    def run(prompt: list[int], max_tokens: int, eos: int | None = EOS) -> list[int]:
        out = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            do_sample=False,
            max_new_tokens=max_tokens,
            eos_token_id=eos,
            pad_token_id=0,
            suppress_tokens=list(range(258, WIDTH)),
        )
        return list(out[0, len(prompt) :].tolist())

    return run
