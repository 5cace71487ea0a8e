"""The controllers that a source tree lacks are built beside the server."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aicirt.contract.errors import AiciError, UnknownControllerError
from lab.system.waiting import wait_until
from pyaici import bundled
from pyaici.client.runtime import Runtime
from pyaici.server.controller_store import ControllerStore
from pyaici.server.http.errors import ApiError, from_aici
from pyaici.server.serve import building
from pyaici.server.settings import ServerSettings
from tests.pyaici.server.small import USER


def test_missing_controllers_are_built_beside_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        assert command[1:] == ["-m", "pyaici.toolchain", "--quiet"]
        # the real one would build into the source tree
        started.append(popen([*command[:1], "-c", "import time; time.sleep(1000)"], **options))
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", start)
    with building() as is_building:
        assert not is_building()
    assert not started and not capsys.readouterr().err
    monkeypatch.setattr(bundled, "FOLDER", tmp_path)
    with building() as is_building:
        assert started[0].poll() is None and is_building()
    assert started[0].poll() is not None and not is_building()
    assert "bundled controllers beside the server, once" in capsys.readouterr().err


def test_a_build_that_has_ended_gets_no_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another group of processes may have its number, hours later."""
    popen = subprocess.Popen
    monkeypatch.setattr(
        subprocess, "Popen", lambda command, **options: popen([*command[:1], "-c", ""], **options)
    )
    monkeypatch.setattr(bundled, "FOLDER", tmp_path)
    signals: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "killpg", lambda *sent: signals.append(sent))
    with building() as is_building:
        wait_until(lambda: not is_building())
    assert not signals


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with Runtime(workers=1) as runtime:
        yield runtime


def test_controller_that_is_being_built_is_not_ready_yet(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = bundled.FOLDER / "yesno.wasm"
    monkeypatch.setattr(bundled, "FOLDER", tmp_path)

    async def main() -> None:
        store = ControllerStore(runtime, ServerSettings(), lambda: True)
        for name in ("yesno", "pyctrl"):
            with pytest.raises(ApiError, match=f"the controller '{name}' is being built") as caught:
                await store.find(name, USER)
            assert caught.value.status == 503 and int(caught.value.headers["Retry-After"]) > 0
        with pytest.raises(UnknownControllerError):
            await store.find("yes_no", USER)
        shutil.copy(built, tmp_path)
        assert await store.find("yesno", USER) == runtime.bundled["yesno"]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("name", "status", "code", "words"),
    [
        ("choice", 404, "unknown_controller", "this one has not been built: python -m pyaici.toolchain"),
        ("jsctrl", 400, "interpreter_missing", "the controller jsctrl was not built"),
    ],
)
def test_controller_that_nobody_builds_is_unknown(
    name: str,
    status: int,
    code: str,
    words: str,
    runtime: Runtime,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bundled, "FOLDER", tmp_path)
    store = ControllerStore(runtime, ServerSettings(), lambda: False)
    with pytest.raises(AiciError, match=words) as caught:
        asyncio.run(store.find(name, USER))
    error = from_aici(caught.value)
    assert (error.status, error.code) == (status, code)
