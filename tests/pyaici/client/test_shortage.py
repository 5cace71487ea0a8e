"""A client that runs out of file descriptors gets a typed error, leaks nothing, and works again later."""

from __future__ import annotations

import itertools
import resource
from pathlib import Path

import pytest

from aicirt.contract.errors import RuntimeFailure
from lab.system.processes import open_files
from pyaici.client.control import Daemon
from pyaici.client.runtime import Runtime
from tests.thorough import cases

from .conftest import VOCABULARY


def limit_for(more: int) -> int:
    """Returns the RLIMIT_NOFILE with which the process can open exactly `more` more descriptors.

    The limit bounds descriptor numbers, and some lower numbers may be free.
    """
    taken = {int(entry.name) for entry in Path("/proc/self/fd").iterdir()}
    free = (number for number in itertools.count() if number not in taken)
    return next(itertools.islice(free, more, None))


def use(daemon: Daemon, wasm: bytes) -> None:
    with Runtime(daemon.socket_path) as runtime:
        runtime.register(VOCABULARY)
        runtime.instantiate(runtime.upload(wasm).id, "ok")


def test_a_client_with_too_few_descriptors_fails_cleanly(guest_wasm: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    outcomes: list[str] = []
    with Daemon(workers=1) as daemon:
        use(daemon, wasm := guest_wasm.read_bytes())
        before = open_files()
        for more in (*range(0, 11, cases(4, 1)), 11):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit_for(more), hard))
            try:
                use(daemon, wasm)
                outcomes.append("")
            except RuntimeFailure as error:
                outcomes.append(str(error))
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            assert open_files() == before
        use(daemon, wasm)
    assert outcomes[0] and not outcomes[-1]
    assert all("files" in text for text in outcomes if text), outcomes


def test_a_daemon_cannot_be_started_without_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = open_files()
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit_for(1), hard))
    try:
        with pytest.raises(RuntimeFailure, match=r"aicirt cannot be started: .*ulimit -n"):
            Runtime(workers=1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert open_files() == before
