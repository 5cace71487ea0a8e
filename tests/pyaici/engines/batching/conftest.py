"""Fixtures: the tiny model in each engine, its vocabulary, and the library's own generation with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pyaici import LlamaModel
from pyaici.engines.batching.engine import BatchingEngine
from pyaici.tokens import Vocabulary
from tests.pyaici.engines.batching.support import (
    LONG_CONTEXT,
    ExactLibrary,
    byte_vocabulary,
    generate_greedily,
    make_engine,
    make_model,
)
from tests.pyaici.engines.llama.tiny_gguf import write_gguf
from tests.thorough import thorough


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
    return byte_vocabulary()


@pytest.fixture(scope="session")
def hf_model() -> Any:
    return make_model()


#: files about controllers and the room in a cache, for which both engines have the same code; hf/test_room.py
#: has the room of Transformers' caches
_SHARED = ("bundled", "calls", "flags", "giving_back", "look", "messages", "room", "runtime", "scheduler")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs tests with the model of each engine, and those of some files with one unless `--thorough`."""
    if "convert" in metafunc.fixturenames:
        one = metafunc.module.__name__.rpartition("test_")[2] in _SHARED
        engines = ["llama"] if one and not thorough() else ["hf", "llama"]
        metafunc.parametrize("convert", engines, indirect=True, scope="session")


@pytest.fixture(scope="session")
def convert(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Any], Any]:
    """Returns a model of the library as each engine takes it, for `make_engine`: with the same weights."""
    if request.param == "hf":
        return lambda model: model

    def write(model: Any) -> LlamaModel:
        library: Any = ExactLibrary()
        return LlamaModel(library, write_gguf(model, tmp_path_factory.mktemp("tiny") / "tiny.gguf"))

    return write


@pytest.fixture(scope="session")
def model(convert: Callable[[Any], Any], hf_model: Any) -> Any:
    """The model, for `make_engine`: the same weights in either format."""
    return convert(hf_model)


@pytest.fixture(scope="session")
def long_model(convert: Callable[[Any], Any]) -> Any:
    """The same model with a longer context."""
    return convert(make_model(max_position_embeddings=LONG_CONTEXT))


@pytest.fixture
def engine(model: Any, vocabulary: Vocabulary) -> BatchingEngine:
    """An engine without controllers."""
    return make_engine(model, vocabulary=vocabulary)


@pytest.fixture(scope="session")
def generate(hf_model: Any) -> Callable[..., list[int]]:
    """Generates greedily for one prompt with the library. Ids that are no tokens are never chosen."""
    return generate_greedily(hf_model)
