"""Fixtures: the tiny model of the Transformers tests, as a GGUF file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyaici import LlamaModel, load_library
from tests.pyaici.engines.batching.support import make_model
from tests.pyaici.engines.llama.tiny_gguf import write_gguf


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaModel]:
    path = write_gguf(make_model(), tmp_path_factory.mktemp("tiny") / "tiny.gguf")
    with LlamaModel(load_library(), path) as model:
        yield model
