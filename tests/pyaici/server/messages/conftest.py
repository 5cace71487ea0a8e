"""The controller kbnf with a vocabulary of all bytes and some longer texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from pyaici.bundled import find_controller
from tests.controllers.grammars.vocabularies import byte_vocab
from tests.controllers.grammars.walk import Controller
from tests.controllers.runners.host import Host


@pytest.fixture(scope="session")
def grammar() -> Iterator[Callable[[str], Controller]]:
    """Returns a function that starts the controller with a grammar in KBNF."""
    with Host() as host:
        program, vocab = host.compile(find_controller("kbnf").read_bytes()), byte_vocab()
        yield lambda text: Controller(program, vocab, text)
