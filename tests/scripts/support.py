"""Runs a script in a copy of the checkout, with an environment that logs its calls."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from lab.system.processes import command_line, family
from lab.system.waiting import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
BOTH = "tests/pyaici/engines/vllm"


def signal_while_it_sleeps(
    script: subprocess.Popen[Any], number: signal.Signals, to_group: bool, sleepers: int = 1
) -> set[int]:
    """Sends a signal once some child processes of a script sleep; returns all processes of the script."""
    deadline = time.monotonic() + PATIENCE
    while sum(command_line(pid).startswith(b"sleep\0") for pid in family(script.pid)) < sleepers:
        assert time.monotonic() < deadline and script.poll() is None
        time.sleep(0.02)
    members = family(script.pid)
    (os.killpg if to_group else os.kill)(script.pid, number)
    return members


def program(path: Path, text: str) -> None:
    path.write_text(f"#!/usr/bin/env bash\n{text}\n")
    path.chmod(0o755)


def run(script: Path, *arguments: str, path: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [script, *arguments],
        env={"PATH": str(path), "HOME": str(path.parent), **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


def environment(folder: Path) -> Path:
    """Creates an environment with what shows that its pip is complete; returns the path of its Python."""
    record = folder / "lib" / "python3.11" / "site-packages" / "pip-26.dist-info" / "RECORD"
    record.parent.mkdir(parents=True)
    record.touch()
    (folder / "bin").mkdir()
    return folder / "bin" / "python"


def logged(log: Path) -> list[str]:
    lines = log.read_text().splitlines()
    lines = [line for line in lines if line != "--version" and "tests.durations --plan" not in line]
    log.write_text("")
    return lines


def installs(lock: str, torch: str | None = None) -> list[str]:
    """Returns the call that installs a lock, torch and the project."""
    return [f"scripts/install.py scripts/locks/{lock}.txt{'' if torch is None else f' {torch}'}"]
