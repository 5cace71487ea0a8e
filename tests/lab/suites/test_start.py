"""The suite `start` reports all figures, and counts compilers."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from lab.suites import start
from lab.suites.start import Cost, _watch_compilers
from tests.lab.suites.figures import Figures, forms


@forms
def test_start_reports_the_second_start(
    form: str, tmp_path: Path, figures: Figures, monkeypatch: pytest.MonkeyPatch
) -> None:
    if form == "stand-ins":
        script = tmp_path / "scripts" / "run.sh"
        script.parent.mkdir()
        script.write_text("#!/bin/sh\nsleep 0.01\n")
        script.chmod(0o700)
        monkeypatch.setattr(start, "ROOT", tmp_path)
    found = figures("start")
    assert set(found) == {"start.second_s"} and found["start.second_s"] > 0


def test_start_reports_all_figures(figures: Figures, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands, which take minutes, are only counted."""
    commands: list[str] = []

    def cost(command: Sequence[str | Path], folder: Path, variables: object = None) -> Cost:
        commands.append(" ".join(map(str, command)))
        if "wheel" in command:
            (folder / "pyaici-1-py3-none-any.whl").touch()
        return Cost(2.0, 1.0, 3)

    monkeypatch.setattr(start, "_cost", cost)
    found = figures("start", quick=False)
    names = {"yardstick_s", "seconds", "cpu_s", "compilers", "mb", "second_s"}
    assert set(found) == {f"start.{name}" for name in names | {"wheel_s", "wheel_cpu_s", "wheel_mb"}}
    assert found["start.wheel_s"] == 6 and min(found.values()) >= 0
    counts = {word: sum(word in command for command in commands) for word in ("clone", "run.sh", "pip wheel")}
    assert counts == {"clone": 1, "run.sh": 2, "pip wheel": 1}


def test_start_counts_the_compilers_of_its_own_folder(tmp_path: Path) -> None:
    """The stand-ins wait for input until all of them were seen."""
    own, other = tmp_path / "own" / "zig", tmp_path / "other" / "zig"
    for zig in (own, other):
        zig.parent.mkdir()
        shutil.copy(shutil.which("cat") or "", zig)
    found: set[tuple[str, str]] = set()
    ended = threading.Event()
    running = [subprocess.Popen([zig], stdin=subprocess.PIPE) for zig in (other, own, own, own)]
    watcher = threading.Thread(target=_watch_compilers, args=(own.parent, found, ended))
    watcher.start()
    while len(found) < 3:
        time.sleep(0.01)
    ended.set()
    watcher.join()
    for process in running:
        process.communicate()
    assert {pid for pid, _ in found} == {str(process.pid) for process in running[1:]}
