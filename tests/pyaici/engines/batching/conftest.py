"""Fixtures: the tiny model in each engine, its vocabulary, and the library's own generation with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pyaici.engines.llama import LlamaModel, load_library
from pyaici.tokens import Vocabulary
from tests.pyaici.engines.batching.support import byte_vocabulary, generate_greedily, make_model
from tests.pyaici.engines.llama.tiny_gguf import write_gguf


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
    return byte_vocabulary()


@pytest.fixture(scope="session")
def hf_model() -> Any:
    return make_model()


@pytest.fixture(scope="session", params=["hf", "llama"])
def model(request: pytest.FixtureRequest, hf_model: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The model, for `make_engine`: the same weights in either format."""
    if request.param == "hf":
        return hf_model
    return LlamaModel(load_library(), write_gguf(hf_model, tmp_path_factory.mktemp("tiny") / "tiny.gguf"))


@pytest.fixture(scope="session")
def generate(hf_model: Any) -> Callable[..., list[int]]:
    """Generates greedily for one prompt with the library. Ids that are no tokens are never chosen."""
    return generate_greedily(hf_model)
