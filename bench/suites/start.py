"""From nothing to a controlled answer: seconds and disk, from a fresh clone and from the wheel."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.report import ROOT, Report

#: upper limits, s and MB
SECONDS, MB, SECOND_S, WHEEL_S, WHEEL_MB = 120.0, 750.0, 5.0, 60.0, 300.0


def run(report: Report) -> None:
    """Measures the last commit. A quick report has the second start of this checkout only."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        if report.quick:
            report.figure("start.second_s", _seconds([ROOT / "scripts" / "run.sh"], here, {}), "s")
            return
        _seconds(["git", "clone", "--quiet", ROOT, here / "aici"], here)
        fresh = _empty(here / "cache")
        command = [here / "aici" / "scripts" / "run.sh"]
        report.figure("start.seconds", _seconds(command, here, fresh), "s", target=SECONDS)
        report.figure("start.mb", _mb(here), "MB", target=MB)
        report.figure("start.second_s", _seconds(command, here, fresh), "s", target=SECOND_S)
        _wheel(report, here)


def _wheel(report: Report, here: Path) -> None:
    """Installs the wheel of the clone, and runs a bundled controller."""
    build = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", here / "aici"]
    _seconds([sys.executable, *build, "--wheel-dir", here], here)
    (wheel,) = here.glob("pyaici-*.whl")
    place = here / "installed"
    place.mkdir()
    python, fresh = place / "venv" / "bin" / "python", _empty(place / "cache")
    commands: list[list[str | Path]] = [
        [sys.executable, "-m", "venv", place / "venv"],
        [python, "-m", "pip", "install", "--quiet", f"{wheel}[llama]"],
        [python, "-m", "pyaici.cli", "run", "regex", "--arg", "[a-z ]{9}!", "--prompt", "Hello"],
    ]
    took = sum(_seconds(command, place, fresh) for command in commands)
    report.figure("start.wheel_s", took, "s", target=WHEEL_S)
    report.figure("start.wheel_mb", _mb(place), "MB", target=WHEEL_MB)


def _empty(cache: Path) -> dict[str, str]:
    """Returns variables that hide the caches from programs."""
    return {"XDG_CACHE_HOME": str(cache), "PIP_NO_CACHE_DIR": "1"}


def _seconds(command: Sequence[str | Path], folder: Path, variables: dict[str, str] | None = None) -> float:
    """Runs a command. Raises RuntimeError with its last output if it fails."""
    print("+", *command, file=sys.stderr)
    started = time.perf_counter()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env=environment | (variables or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed:\n{done.stdout[-4000:]}")
    return time.perf_counter() - started


def _mb(folder: Path) -> float:
    """Returns the size of a folder on the disk, MB."""
    # the first number of the output
    done = subprocess.run(
        ["du", "--summarize", "--block-size=MB", folder], check=True, stdout=subprocess.PIPE
    )
    return float(done.stdout.split(b"MB")[0])
