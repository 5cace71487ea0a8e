"""The engine under test, once per session."""

from __future__ import annotations

import pytest

from .engine import Engine, build


@pytest.fixture(scope="session")
def session_engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return Engine(build(tmp_path_factory.mktemp("cfg")))


@pytest.fixture
def engine(session_engine: Engine) -> Engine:
    """The engine with default limits."""
    session_engine.limits()
    return session_engine
