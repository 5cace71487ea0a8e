"""The engine under test, once per session."""

from __future__ import annotations

import pytest

from lab.oracles.json_schema.schema_engine import Engine, build


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return Engine(build(tmp_path_factory.mktemp("json_schema")))
