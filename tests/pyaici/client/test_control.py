"""Calls to the supervisor from several threads of one client."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aicirt.contract.errors import (
    AiciError,
    ArgumentError,
    SupervisorDiedError,
    TimeLimitError,
    UnknownControllerError,
)
from lab.system.processes import command_line, family
from pyaici.client.control import Daemon
from pyaici.client.runtime import Runtime

from .conftest import VOCABULARY


@pytest.fixture
def runtime(guest_wasm: Path) -> Iterator[Runtime]:
    with Runtime(workers=1, limits={"init_ms": 1500}) as runtime:
        runtime.register(VOCABULARY)
        runtime.tag(runtime.upload(guest_wasm).id, "guest")
        yield runtime


def test_the_supervisor_does_not_import_wasmtime(shared_runtime: Runtime) -> None:
    """A supervisor runs no guest, and starts faster without it."""
    loaded = {
        command_line(pid).partition(b"aicirt")[2][:12]: "wasmtime" in Path(f"/proc/{pid}/maps").read_text()
        for pid in family(shared_runtime.daemon_pid)
    }
    assert not loaded.pop(b"\0--log-level")
    assert len(loaded) == 3 and all(loaded.values()), loaded


def test_a_slow_call_does_not_block_other_calls(runtime: Runtime) -> None:
    slow: list[BaseException] = []

    def refused() -> None:
        try:
            runtime.prepare("guest", "init_loop")
        except BaseException as error:
            slow.append(error)

    thread = threading.Thread(target=refused)
    thread.start()
    time.sleep(0.2)
    calls = 0
    while not slow and calls < 20:
        runtime.list()
        with pytest.raises(ArgumentError, match="no such luck"):
            runtime.prepare("guest", "init_fail")
        calls += 1
    assert calls == 20 and not slow, "init_loop is ended after 1.5 s of CPU time"
    thread.join()
    assert isinstance(slow[0], TimeLimitError)


def test_every_thread_gets_its_own_replies(runtime: Runtime) -> None:
    wrong: list[object] = []

    def work(number: int) -> None:
        for turn in range(40):
            name = f"none-{number}-{turn}"
            try:
                if turn % 4 == number % 4:
                    assert ["guest"] in [info.tags for info in runtime.list()]
                else:
                    runtime.prepare(name)
                    wrong.append(name)
            except UnknownControllerError as error:
                if name not in str(error):
                    wrong.append(error)
            except BaseException as error:
                wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_all_waiting_calls_fail_when_the_supervisor_dies(guest_wasm: Path) -> None:
    with Daemon(workers=1, limits={"init_ms": 60_000}) as daemon, Runtime(daemon.socket_path) as runtime:
        runtime.register(VOCABULARY)
        module = runtime.upload(guest_wasm).id
        errors: list[AiciError] = []

        def work(number: int) -> None:
            try:
                runtime.prepare(module, f"init_loop {number}")
            except AiciError as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        os.kill(daemon.pid, signal.SIGKILL)
        for thread in threads:
            thread.join()
        assert [type(error) for error in errors] == [SupervisorDiedError] * 4
