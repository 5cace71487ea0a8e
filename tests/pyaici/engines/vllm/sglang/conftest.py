"""Fixtures: a process with SGLang's Python, and the daemon that its controllers run in."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

from lab.runners.compiled import share
from lab.system.waiting import PATIENCE
from pyaici.client.control import Daemon
from pyaici.client.runtime import Runtime
from tests.pyaici.engines.vllm.sglang.stand_ins import import_sglang, run_case


@pytest.fixture(scope="session")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon that ends a busy loop soon, and waits for controllers however busy the machine is."""
    limits = {"mid_ms": 100, "step_deadline_ms": 60_000}
    with Daemon(workers=1, limits=limits, store=share(tmp_path_factory.mktemp("store"))) as daemon:
        yield daemon


@pytest.fixture(scope="session")
def runtime(daemon: Daemon) -> Iterator[Runtime]:
    """A client of this daemon."""
    with Runtime(daemon.socket_path) as runtime:
        yield runtime


@pytest.fixture(scope="session")
def sglang(daemon: Daemon, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    """Runs a function of `cases.py` in a process of SGLang's, which uses this daemon."""
    arguments = str(tmp_path_factory.mktemp("plugin")), {"AICI_SOCKET": str(daemon.socket_path)}
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawn, initializer=import_sglang, initargs=arguments) as pool:
        yield lambda name, *args: pool.submit(run_case, name, *args).result(PATIENCE)
