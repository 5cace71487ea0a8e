"""Fixtures: engines and servers of vLLM, each made once, their daemon, and the same requests on Transformers.

These tests run with the Python of .venv-vllm: `scripts/test.sh tests/pyaici/engines/vllm`. The variable
AICI_TESTED_VLLM has them run with another version of vLLM, or with a simulated worker: see
`lab.vllm.simulated`. The engine on Transformers is then our own with the same tiny model.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lab.runners.compiled import share
from lab.system.waiting import PATIENCE
from lab.vllm.engines import ENVIRONMENT
from lab.vllm.server import Servers
from lab.vllm.simulated import VARIABLE, is_simulated, use_version
from lab.vllm.simulated.model import tiny_engine
from pyaici.client.control import Daemon
from pyaici.client.runtime import Runtime
from pyaici.engines.vllm.scheduling import driver
from tests.pyaici.engines.vllm.configurations import (
    ConfiguredEngines,
    Models,
    configuration_of,
    engine_options,
    is_run,
    kept_for,
    place_of,
)
from tests.pyaici.engines.vllm.guests import build_guest
from tests.pyaici.engines.vllm.remote import V2Engines
from tests.pyaici.engines.vllm.requests import step_when_prepared

os.environ.update(ENVIRONMENT)
if version := os.environ.get(VARIABLE):
    use_version(version, Path(tempfile.mkdtemp(prefix="aici-tested-")))
_FOLDER = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    """Registers markers, and ignores deprecation warnings of libraries about each other."""
    config.addinivalue_line("markers", "configuration(name): the engine of a test, see configurations.py")
    config.addinivalue_line("markers", "real_worker: a test that a simulated worker cannot pass")
    config.addinivalue_line("markers", "simulated_worker: a test of the simulated worker")
    config.addinivalue_line(
        "markers", "any_worker: a test that a worker cannot change; vLLM's own has it with --thorough"
    )
    config.addinivalue_line("markers", "xdist_group(name): of pytest-xdist, which may be absent")
    for category in ("DeprecationWarning", "FutureWarning"):
        for module in ("torch", "vllm", "xgrammar"):
            config.addinivalue_line("filterwarnings", rf"ignore::{category}:{module}\.")
    config.addinivalue_line("filterwarnings", r"ignore:\s*Encountered the use of a type that is scheduled")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Has pytest-xdist, with --dist=loadgroup, run the tests of all engines in the same worker.

    Tests of one engine compare its results with those of others. The tests of a file share a server.
    """
    item.add_marker(pytest.mark.xdist_group("vllm-engines" if configuration_of(item) else item.path.stem))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Makes tests of the same engine neighbours, and leaves out those of the other worker."""
    left_out = [item for item in items if item.path.is_relative_to(_FOLDER) and not is_run(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
    items.sort(key=lambda item: place_of(item) if item.path.is_relative_to(_FOLDER) else -1)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Ends the engine or server before tests of another kind, for its memory."""
    if nextitem is None or kept_for(nextitem) != kept_for(item):
        for kept in _KEPT:
            kept.close()


#: engines and servers of this process
_KEPT: list[ConfiguredEngines | V2Engines | Servers] = []


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    """Folders of models by name."""
    return Models(tmp_path_factory.mktemp)


@pytest.fixture(scope="session")
def model_path(models: Models) -> Path:
    """The folder of the model that most of these tests use."""
    return models("shallow")


@pytest.fixture(scope="session")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """The daemon of all engines that share one."""
    # other work on the machine delays controllers, which the limits count
    limits = dict.fromkeys(("pre_ms", "post_ms", "mid_ms"), 1000) | {"step_deadline_ms": 60_000}
    with Daemon(workers=1, limits=limits, store=share(tmp_path_factory.mktemp("store"))) as daemon:
        yield daemon


@pytest.fixture(scope="session")
def runtime(daemon: Daemon) -> Iterator[Runtime]:
    """A client of the shared daemon."""
    with Runtime(daemon.socket_path) as runtime:
        yield runtime


@pytest.fixture(scope="session")
def guests(runtime: Runtime, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., None]:
    """Uploads controllers of `guests.py` to the shared daemon, under their names, if they are not there."""
    folder = tmp_path_factory.mktemp("guests")
    known: set[str] = set()

    def upload(*names: str) -> None:
        for name in names:
            if name not in known:
                runtime.tag(runtime.upload(build_guest(name, folder)).id, name)
                known.add(name)

    return upload


@pytest.fixture(scope="session")
def sockets(daemon: Daemon, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Sockets of daemons by the names of `Configuration.daemon`."""
    changing = tmp_path_factory.mktemp("changing") / "socket"
    return {"shared": str(daemon.socket_path), "changing": str(changing)}


@pytest.fixture(scope="session")
def change_daemon(
    sockets: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Runtime | None]]:
    """Starts the daemon of engines with a changing one, with these options, unless it has them already.

    Returns a client of it. `workers=0` ends the daemon, and returns None.
    """
    link = Path(sockets["changing"])
    present: tuple[dict[str, Any], Runtime | None] = {"workers": 0}, None
    with contextlib.ExitStack() as stack:

        def start(**options: Any) -> Runtime | None:
            nonlocal present
            if present[0] != options:
                stack.close()
                present = options, None
                if options.get("workers") != 0:
                    store = share(tmp_path_factory.mktemp("store"))
                    daemon = stack.enter_context(Daemon(**{"workers": 1, "store": store, **options}))
                    link.symlink_to(daemon.socket_path)
                    stack.callback(link.unlink)
                    present = options, stack.enter_context(Runtime(daemon.socket_path))
            return present[1]

        yield start


@pytest.fixture
def configuration(request: pytest.FixtureRequest) -> str:
    """The name of the engine's configuration."""
    return configuration_of(request.node)


@pytest.fixture(scope="session")
def engines(models: Models, sockets: dict[str, str]) -> Iterator[ConfiguredEngines]:
    made = ConfiguredEngines(models, sockets)
    _KEPT.append(made)
    yield made
    made.close()


@pytest.fixture
def llm(engines: ConfiguredEngines, configuration: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The engine of the test's configuration.

    With few blocks, requests begin together. On a busy machine they might run one after the other: none would
    be preempted.
    """
    made = engines(configuration)
    if configuration.endswith("-preempted"):
        step = partial(step_when_prepared, made, made.llm_engine.step)
        monkeypatch.setattr(made.llm_engine, "step", step)
    return made


@pytest.fixture(scope="session")
def v2_engines(models: Models) -> Iterator[V2Engines]:
    made = V2Engines(models("shallow"))
    _KEPT.append(made)
    yield made
    made.close()


@pytest.fixture
def on_v2(
    v2_engines: V2Engines, models: Models, sockets: dict[str, str], configuration: str
) -> Callable[..., Any]:
    """Calls `function(llm, *args)` in another process, where the engine has the V2 model runner."""
    return partial(v2_engines.run, engine_options(configuration, models, sockets))


@pytest.fixture(scope="session")
def servers(model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    made = Servers(model_path, tmp_path_factory.mktemp("servers"))
    _KEPT.append(made)
    yield made
    made.close()


@pytest.fixture(scope="session")
def hf(model_path: Path, runtime: Runtime) -> Any:
    """An engine on Transformers, with controllers of the shared daemon."""
    from pyaici import HfEngine
    from pyaici.engines.hf.program import load_model

    if is_simulated():
        return tiny_engine(model_path, runtime)
    return HfEngine(*load_model(model_path, "cpu"), runtime)


@pytest.fixture(scope="session")
def reference(hf: Any) -> Callable[..., list[list[int]]]:
    """Generates greedily on Transformers, without a controller. Keeps results: configurations share them."""
    from pyaici.engines.engine import Request

    known: dict[tuple[str, int], list[list[int]]] = {}

    def run(prompts: list[Any], max_tokens: int) -> list[list[int]]:
        key = repr(prompts), max_tokens
        if key not in known:
            results = hf.run([Request(prompt, max_tokens=max_tokens) for prompt in prompts])
            known[key] = [result.new_tokens for result in results]
        return known[key]

    return run


@pytest.fixture(autouse=True)
def all_drafts_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raises the time limit, so that the load of this machine does not decide which drafts are checked."""
    monkeypatch.setattr(driver, "SECONDS", PATIENCE)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """Adds the end of the server's log to the report of a failed test."""
    report = yield
    servers = getattr(item, "funcargs", {}).get("servers")
    if report.failed and servers is not None and servers.current is not None:
        report.sections.append(("the server's log", servers.current.tail()))
    return report
