"""Fixtures: shared engines and servers of vLLM, and the tokens of Transformers for the same prompts.

These tests run with the Python of .venv-vllm: `scripts/test.sh tests/pyaici/engines/vllm`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pyaici.engines.vllm.engines import ENVIRONMENT, Engines
from tests.pyaici.engines.vllm.remote import V2Engines
from tests.pyaici.engines.vllm.server import Server, Servers
from tests.pyaici.engines.vllm.shallow_model import make_shallow_model

os.environ.update(ENVIRONMENT)


def pytest_configure(config: pytest.Config) -> None:
    """Ignores deprecation warnings of libraries about each other."""
    for category in ("DeprecationWarning", "FutureWarning"):
        for module in ("torch", "vllm", "xgrammar"):
            config.addinivalue_line("filterwarnings", rf"ignore::{category}:{module}\.")
    config.addinivalue_line("filterwarnings", r"ignore:\s*Encountered the use of a type that is scheduled")


@pytest.fixture(scope="session")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the model that these tests use."""
    return make_shallow_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def engines(model_path: Path) -> Iterator[Engines]:
    made = Engines(model_path)
    yield made
    made.close()


@pytest.fixture
def llm(engines: Engines) -> Any:
    """An engine in this process with default options."""
    return engines()


@pytest.fixture(scope="session")
def v2_engines(model_path: Path) -> Iterator[V2Engines]:
    """Engines with the V2 model runner, in another process."""
    made = V2Engines(model_path)
    yield made
    made.close()


@pytest.fixture(scope="session")
def servers(model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    made = Servers(model_path, tmp_path_factory.mktemp("servers"))
    yield made
    made.close()


@pytest.fixture
def server(servers: Servers) -> Server:
    """A server with default options."""
    return servers()


@pytest.fixture(scope="session")
def reference(model_path: Path) -> Callable[..., list[list[int]]]:
    """Generates greedily with our engine on Transformers, without a controller."""
    from pyaici.engines.hf import HfEngine, Request
    from pyaici.engines.hf.program import load_model

    engine = HfEngine(*load_model(model_path, "cpu"))

    def run(prompts: list[Any], max_tokens: int) -> list[list[int]]:
        numbers = [engine.add(Request(prompt, max_tokens=max_tokens)) for prompt in prompts]
        engine.run()
        results = [engine.results(number)[0] for number in numbers]
        return [result.tokens[result.prompt_tokens :] for result in results]

    return run


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """Adds the end of the server's log to the report of a failed test."""
    report = yield
    servers = getattr(item, "funcargs", {}).get("servers")
    if report.failed and servers is not None and servers.current is not None:
        report.sections.append(("the server's log", servers.current.tail()))
    return report


DRAFTS = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 3, "prompt_lookup_min": 1}
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "sync": {},
    "async": {"async_scheduling": True},
    "drafts": {"speculative_config": DRAFTS},
}


@pytest.fixture(scope="module", params=CONFIGURATIONS)
def configuration(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Options of an engine, for tests of every kind of scheduling."""
    found: dict[str, Any] = CONFIGURATIONS[request.param]
    return found
