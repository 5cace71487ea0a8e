"""The controllers that a source tree lacks are built beside the server."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from pyaici import bundled
from pyaici.server.program import building


def test_missing_controllers_are_built_beside_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        assert command[1:] == ["-m", "pyaici.build", "--quiet"]
        # the real one would build into the source tree
        started.append(popen([*command[:1], "-c", "import time; time.sleep(1000)"], **options))
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", start)
    with building():
        pass
    assert not started and not capsys.readouterr().err
    monkeypatch.setattr(bundled, "FOLDER", tmp_path)
    with building():
        assert started[0].poll() is None
    assert started[0].poll() is not None
    assert "bundled controllers beside the server, once" in capsys.readouterr().err
