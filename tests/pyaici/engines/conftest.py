"""Fixtures: a daemon with a tagged controller, for logits processors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from pyaici.build import build_controller
from pyaici.client.runtime import Runtime
from pyaici.engines.vllm.logits import constraints
from tests.pyaici.engines.batching.support import byte_vocabulary

GUEST = Path(__file__).resolve().parents[2] / "guests" / "guest.c"


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    """A runtime with the controller "guest"."""
    guest = build_controller(GUEST, tmp_path_factory.mktemp("guest") / "guest.wasm").path
    with Runtime(workers=1) as runtime:
        runtime.tag(runtime.upload(guest).id, "guest")
        yield runtime


@pytest.fixture
def runtime(daemon: Runtime, monkeypatch: pytest.MonkeyPatch) -> Runtime:
    """Makes new processors connect to the daemon, with a vocabulary of bytes."""
    assert daemon._daemon is not None
    monkeypatch.setenv("AICI_SOCKET", str(daemon._daemon.socket_path))
    monkeypatch.setattr(constraints, "engine_vocabulary", lambda config: byte_vocabulary())
    return daemon
