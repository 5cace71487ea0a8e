"""The controller kbnf, with a vocabulary of all bytes and some longer texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from lab.oracles.grammars.vocabularies import byte_vocab
from lab.oracles.grammars.walk import Controller
from lab.runners.host import Host
from pyaici.bundled import find_controller
from pyaici.server.apis.messages import Plan


@pytest.fixture(scope="session")
def grammar() -> Iterator[Callable[[Plan], Controller]]:
    """Returns a function that starts the controller with the grammar of a plan."""
    with Host() as host:
        program, vocab = host.compile(find_controller("kbnf").read_bytes()), byte_vocab()
        yield lambda plan: Controller(program, vocab, plan.argument or "")
