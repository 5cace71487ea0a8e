"""Sends requests that schemathesis generates from the API's description; none may break the server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.runners.compiled import share
from lab.servers.tiny_model import make_tiny_model
from lab.system.waiting import PATIENCE
from tests.pyaici.server.cpc.test_ollama import StandIn
from tests.pyaici.server.serving import Serving
from tests.thorough import cases, thorough

pytestmark = pytest.mark.slow

#: excluded check: a body that fits the description may still be refused for its meaning
_EXCLUDED = "positive_data_acceptance"
#: for each operation
_EXAMPLES = cases(2, long=50)
#: the coverage has a body for each bound of each field, thousands: test_compatibility.py sends each field
_PHASES = "coverage,fuzzing" if thorough() else "fuzzing"
#: how schemathesis serializes a controller's file
_HOOKS = """
import schemathesis

@schemathesis.serializer("application/wasm")
def wasm(context, value):
    return value if isinstance(value, bytes) else str(value).encode()
"""


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server on which every request is allowed, with short answers."""
    folder = tmp_path_factory.mktemp("server")
    with StandIn.running() as ollama:
        ollama.pieces = ["print(", "1)"]
        options = ("--anonymous", "admin", "--max-tokens", "4", "--requests-per-minute", "0")
        # a separate store: the requests delete uploads, which could belong to other tests
        places = ("--store", str(share(folder / "store")), "--ollama-url", ollama.url)
        # lists with too many items must be refused for their length, not for their bytes
        bytes_ = ("--max-body-bytes", str(64 << 20))
        # the tests ignore the model's texts, and the default model would take most of the time
        model = ("--model", str(make_tiny_model(folder / "model")))
        with Serving(folder / "log", *options, *places, *bytes_, *model) as server:
            yield server


def test_generated_requests_get_answers_as_described(fuzzed: Serving, tmp_path: Path) -> None:
    (tmp_path / "hooks.py").write_text(_HOOKS)
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{fuzzed.url}/openapi.json", "--seed", "1"]
    command += ["--max-examples", str(_EXAMPLES), "--exclude-checks", _EXCLUDED]
    command += ["--request-timeout", str(PATIENCE), "--phases", _PHASES]
    command += ["--suppress-health-check", "all", "--no-color"]
    run = subprocess.run(
        command,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "SCHEMATHESIS_HOOKS": "hooks", "PYTHONPATH": str(tmp_path)},
    )
    assert run.returncode == 0, run.stdout[-8000:] + run.stderr[-2000:]
    with fuzzed.client() as client:
        assert client.get("/ready").status_code == 200
    assert "Traceback" not in fuzzed.text()
