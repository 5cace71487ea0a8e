"""The controller kbnf, whose tokens are the bytes and some texts of several."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from pyaici.bundled import find_controller
from tests.controllers.grammars.vocabularies import byte_vocab
from tests.controllers.grammars.walk import Controller
from tests.controllers.host import Host


@pytest.fixture(scope="session")
def grammar() -> Iterator[Callable[[str], Controller]]:
    """Of a text in KBNF."""
    with Host() as host:
        program, vocab = host.compile(find_controller("kbnf").read_bytes()), byte_vocab()
        yield lambda text: Controller(program, vocab, text)
