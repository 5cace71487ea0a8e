"""The controller kbnf, with two vocabularies."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aicirt.wasm import Program
from lab.oracles.grammars.vocabularies import byte_vocab, few_tokens
from lab.oracles.grammars.walk import Controller


@pytest.fixture(scope="session")
def grammar(program: Callable[[str], Program]) -> Callable[[str | bytes], Controller]:
    """Makes a controller from a text in KBNF; all bytes are tokens."""
    vocab = byte_vocab()
    return lambda text: Controller(program("kbnf"), vocab, text)


@pytest.fixture(scope="session")
def small(program: Callable[[str], Program]) -> Callable[[str], Controller]:
    """The same with the tokens of `few_tokens`."""
    vocab = few_tokens()
    return lambda text: Controller(program("kbnf"), vocab, text)
