"""Fixtures: the tiny model, its vocabulary, and the library's own generation with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pyaici.tokens import Vocabulary
from tests.pyaici.engines.batching.support import byte_vocabulary, generate_greedily, make_model


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
    return byte_vocabulary()


@pytest.fixture(scope="session")
def model() -> Any:
    return make_model()


@pytest.fixture(scope="session")
def generate(model: Any) -> Callable[..., list[int]]:
    """Generates greedily for one prompt with the library. Ids that are no tokens are never chosen."""
    return generate_greedily(model)
