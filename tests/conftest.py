"""Fixtures and hooks for all tests: Ctrl-C, the order of tests, the module store, shared memory."""

from __future__ import annotations

import functools
import gc
import importlib.util
import logging
import os
import signal
import ssl
import sys
import threading
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from lab.runners.compiled import common_code, exchange, share
from pyaici.testing.playground import PATIENT
from tests.distribution import build_wheel, copy_checkout
from tests.durations import UNKNOWN, read_durations
from tests.quick import Selection, select, vllm_exists
from tests.shared_daemon import sharing
from tests.thorough import is_left_out

pytest_plugins = ["tests.recorder"]

#: names the folder of compiled controllers to runs of pytest that this one starts
_COMMON_CODE = "AICI_COMMON_CODE"
_SELECTION = pytest.StashKey[Selection]()

# These clients take seconds to import, and each process of pytest-xdist collects all tests, but runs few.
for _client in ("anthropic", "openai"):
    if _client not in sys.modules and (_spec := importlib.util.find_spec(_client)) and _spec.loader:
        _spec.loader = importlib.util.LazyLoader(_spec.loader)
        sys.modules[_client] = importlib.util.module_from_spec(_spec)
        _spec.loader.exec_module(sys.modules[_client])

# A shell starts background jobs with SIGINT ignored, and child processes inherit that. The programs that
# tests interrupt would then not notice.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# pytest has read it. Tests that run pytest themselves compare what it prints.
os.environ.pop("PYTEST_ADDOPTS", None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="run the short selection of tests/quick.py")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Passes the selection to a worker of pytest-xdist."""
    node.workerinput["quick"] = _selected(node.config)


def _selected(config: pytest.Config) -> dict[str, str] | None:
    """Returns the names of `Selection.files` as strings if there is a selection, else None."""
    if not config.getoption("quick"):
        return None
    if hasattr(config, "workerinput"):
        return cast(dict[str, str], config.workerinput["quick"])
    if _SELECTION not in config.stash:
        config.stash[_SELECTION] = select(vllm_exists())
    return {path.as_posix(): name for path, name in config.stash[_SELECTION].files.items()}


def pytest_report_header(config: pytest.Config) -> list[str]:
    _selected(config)
    selection = config.stash.get(_SELECTION, None)  # None in a worker of pytest-xdist, too
    return [f"quick: {note}" for note in selection.notes] if selection else []


def _relative(path: Path, config: pytest.Config) -> str:
    return path.relative_to(config.rootpath).as_posix() if path.is_relative_to(config.rootpath) else ""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves out files that are not selected."""
    selected = _selected(config)
    ignored = selected is not None and collection_path.name.startswith("test_")
    return True if ignored and _relative(collection_path, config) not in (selected or ()) else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps selected tests. With several workers, puts the files that take longest first.

    If they started last, one worker of pytest-xdist would still run when the others have finished. A file's
    tests stay together, since they share daemons, servers and models. A single process keeps the order.
    """
    addressed = [item.nodeid for item in items if " at 0x" in item.nodeid]
    if addressed:  # each process of pytest-xdist would name the test in another way
        raise pytest.UsageError(f"the id of a test has the address of an object: {addressed[0]}")
    left_out = {item for item in items if is_left_out(item)}
    config.hook.pytest_deselected(items=[*left_out])
    files: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item not in left_out:
            files[_relative(item.path, config)].append(item)
    if (selected := _selected(config)) is not None:
        left = []
        for name, tests in files.items():
            only = selected.get(name, "")
            # the name in the table may be that of a test that is no more
            kept = [test for test in tests if test.nodeid.partition("::")[2] == only] or tests[
                : 1 if only else None
            ]
            left += [test for test in tests if test not in kept]
            files[name] = kept
        config.hook.pytest_deselected(items=left)
    durations = read_durations() if "PYTEST_XDIST_WORKER" in os.environ else {}
    order = sorted(files, key=lambda name: -durations.get(name, UNKNOWN).total)
    items[:] = [test for name in order for test in files[name]]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keeps imported modules, a million objects, out of the collections of garbage."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    exchange()


@pytest.fixture(scope="session", autouse=True)
def patient_runtimes() -> Iterator[None]:
    """Lets runtimes wait for all sequences of a step, so that the machine's load changes no result.

    Without it, a sequence whose worker got no CPU for a moment sits a step out, and in which steps that
    happens is seen in passes, logs and drafts. Tests of late sequences set these limits themselves.

    A run's message may come from another one, and so late.

    No tables are filled ahead of time, which takes up to 1.5 s of a processor for each new argument. Tests of
    warming set that limit themselves, too.
    """
    limits = {**PATIENT, "receive_seconds": 3600, "warm_budget_ms": 0}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AICI_LIMITS", " ".join(f"{name}={value}" for name, value in limits.items()))
        yield


@pytest.fixture(scope="session", autouse=True)
def module_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Uses a private store: tests must not use the user's modules and tags, nor those of parallel tests."""
    base = tmp_path_factory.getbasetemp()
    run = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    code = Path(os.environ.get(_COMMON_CODE, run / "common-code"))
    with common_code(code), pytest.MonkeyPatch.context() as patch:
        patch.setenv(_COMMON_CODE, str(code))
        patch.setenv("AICI_STORE", str(share(tmp_path_factory.mktemp("store") / "modules")))
        yield


@pytest.fixture(scope="session", autouse=True)
def shared_daemon(patient_runtimes: None, module_store: None) -> Iterator[None]:
    """Starts one daemon for all playgrounds and replays that need no other."""
    with sharing():
        yield


@pytest.fixture(scope="session", autouse=True)
def shared_tls() -> Iterator[None]:
    """Lets HTTP clients share what they make of the system's certificates: it takes 30 ms for each client."""
    make = ssl.create_default_context

    @functools.cache
    def made(_files: tuple[str | None, ...], *arguments: Any, **options: Any) -> ssl.SSLContext:
        return make(*arguments, **options)

    def shared(*arguments: Any, **options: Any) -> ssl.SSLContext:
        files = tuple(os.environ.get(name) for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"))
        return made(files, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", shared)
        yield


@pytest.fixture
def no_collection() -> Iterator[None]:
    """Collects no garbage in the test: its finalizers would fail where a deep text has used up the stack."""
    gc.disable()
    yield
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Undoes what a program that a test ran in this process set for the log.

    Its handler has the test's standard error, which is closed for the next one.
    """
    root = logging.getLogger()
    handlers, level, hooks = [*root.handlers], root.level, (sys.excepthook, threading.excepthook)
    result = yield
    root.handlers[:], (sys.excepthook, threading.excepthook) = handlers, hooks
    root.setLevel(level)
    return result


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the files that git tracks or would add, without build outputs."""
    return copy_checkout(tmp_path_factory.mktemp("checkout"))


@pytest.fixture(scope="session")
def built_wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of `checkout`."""
    return build_wheel(checkout, tmp_path_factory.mktemp("wheel"))
