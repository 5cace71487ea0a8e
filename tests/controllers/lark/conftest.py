"""The controller lark, with two vocabularies."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from aicirt.wasm import Limits, Program
from pyaici.build import build_controller
from tests.controllers.conftest import CONTROLLERS
from tests.controllers.grammars.vocabularies import byte_vocab, few_tokens
from tests.controllers.grammars.walk import Controller
from tests.controllers.host import Host
from tests.languages import compiler_or_skip


@pytest.fixture(scope="session")
def grammar(program: Callable[[str], Program]) -> Callable[[str | bytes], Controller]:
    """Of a text in the dialect of Lark; all bytes are tokens."""
    vocab = byte_vocab()
    return lambda text: Controller(program("lark"), vocab, text)


@pytest.fixture(scope="module")
def unhurried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str | bytes], Controller]]:
    """As `grammar`; a step may take long.

    Where a thousand words of a text begin with the same byte, the step behind it takes 10 to 20 ms of CPU,
    and 20 ms is the limit. Here that ends the test; the runtime only counts the sequence as late.
    """
    vocab = byte_vocab()
    with Host(Limits(mid_ms=1000.0)) as host:
        with compiler_or_skip():
            built = build_controller(CONTROLLERS / "lark", tmp_path_factory.mktemp("wasm") / "lark.wasm")
        program = host.compile(built.path.read_bytes())
        yield lambda text: Controller(program, vocab, text)


@pytest.fixture(scope="session")
def small(program: Callable[[str], Program]) -> Callable[[str], Controller]:
    """The same with the tokens of `few_tokens`."""
    vocab = few_tokens()
    return lambda text: Controller(program("lark"), vocab, text)


@pytest.fixture(scope="session")
def spaced(program: Callable[[str], Program]) -> Callable[[str], Controller]:
    """The same with blanks among the tokens."""
    vocab = few_tokens(blanks=True)
    return lambda text: Controller(program("lark"), vocab, text)
