"""Fixtures and hooks for all tests: Ctrl-C, the order of tests, the module store, shared memory."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.distribution import build_wheel, copy_checkout

# A shell starts background jobs with SIGINT ignored, and child processes inherit that. The programs that
# tests interrupt would then not notice.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


#: tests that take half a minute or more, longest first. If they started last, one worker of pytest-xdist
#: would still run when the others have finished
LONGEST = (
    "tests/fuzz",
    "tests/test_packaging.py",
    "tests/test_starters.py",
    "tests/docs/test_examples.py",
    "tests/docs/test_server_pages.py",
    "tests/pyaici/engines/batching/test_program.py",
    "tests/controllers/regex/test_controller.py",
    "tests/controllers/exactness",
    "tests/controllers/lark/test_lexemes.py",
    "tests/bench/suites",
    "tests/bench/campaigns",
    "tests/pyaici/server/test_load.py",
    "tests/pyaici/server/test_program.py",
    "tests/pyaici/engines/batching/test_interrupts.py",
    "tests/pyaici/client/test_warm.py",
    "tests/pyaici/client/test_memory.py",
    "tests/pyaici/cpc/test_real_model.py",
    "tests/controllers/lr1/test_lexemes.py",
    "tests/controllers/sdk/recognizer/test_mixed_splices.py",
    "tests/aicirt/worker/test_listener.py",
)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Puts LONGEST first if there are several workers. A single process keeps the order of the files."""

    def place(item: pytest.Item) -> int:
        path = item.path.relative_to(config.rootpath).as_posix()
        return next((i for i, name in enumerate(LONGEST) if f"{path}/".startswith(f"{name}/")), len(LONGEST))

    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=place)


@pytest.fixture(scope="session", autouse=True)
def module_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Uses a private store: tests must not use the user's modules and tags, nor those of parallel tests."""
    before = os.environ.get("AICI_STORE")
    os.environ["AICI_STORE"] = str(tmp_path_factory.mktemp("store") / "modules")
    yield
    if before is None:
        del os.environ["AICI_STORE"]
    else:
        os.environ["AICI_STORE"] = before


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the files that git tracks or would add, without build outputs."""
    return copy_checkout(tmp_path_factory.mktemp("checkout"))


@pytest.fixture(scope="session")
def built_wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of `checkout`."""
    return build_wheel(checkout, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module", autouse=True)
def nothing_left_in_shared_memory() -> Iterator[None]:
    """Fails a file whose tests leave a name of this process in /dev/shm: it would disturb later files."""
    pattern = f"*aici-{os.getuid()}-{os.getpid()}-*"
    before = set(Path("/dev/shm").glob(pattern))
    yield
    assert not set(Path("/dev/shm").glob(pattern)) - before
