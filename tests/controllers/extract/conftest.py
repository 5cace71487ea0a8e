"""The controller extract; all bytes are tokens."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aicirt.wasm import Program
from lab.oracles.grammars.vocabularies import byte_vocab
from lab.oracles.grammars.walk import Controller


@pytest.fixture(scope="session")
def extract(program: Callable[[str], Program]) -> Callable[[str], Controller]:
    """Makes a controller from an argument."""
    vocab = byte_vocab()
    return lambda text: Controller(program("extract"), vocab, text)
