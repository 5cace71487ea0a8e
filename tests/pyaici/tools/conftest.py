"""A runtime with a tiny engine, for scripts that make calls."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyaici.client.control import Daemon
from pyaici.client.runtime import Runtime
from tests.pyaici.engines.batching.support import byte_vocabulary, make_engine, make_model
from tests.pyaici.tools.support import Caller


@pytest.fixture(scope="module")
def caller() -> Iterator[Caller]:
    with Daemon(workers=1) as daemon, Runtime(daemon.socket_path) as runtime:
        with make_engine(make_model(), runtime=runtime, vocabulary=byte_vocabulary()) as engine:
            yield Caller(engine, daemon.socket_path)
