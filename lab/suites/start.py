"""From nothing to a controlled answer: time, compilers and disk, from a fresh clone and from the wheel."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aicirt.system.pace import GOOD_SECONDS, yardstick
from lab import ROOT
from lab.report import Report

#: upper limits, s and MB. CPU_S is that of a machine with a good yardstick
SECONDS, CPU_S, COMPILERS, MB, SECOND_S, WHEEL_S, WHEEL_MB = 120.0, 60.0, 80, 750.0, 5.0, 60.0, 300.0
#: seconds between two looks for compilers, which take a tenth of a second and more
LOOK_S = 0.02


@dataclass(frozen=True)
class Cost:
    """Cost of a command."""

    seconds: float
    #: processor time of the command and its descendants, user and kernel, s
    cpu_s: float
    #: processes of Zig, which starts one for each C and C++ source that it compiles
    compilers: int


def run(report: Report) -> None:
    """Measures the last commit. A quick report has the second start of this checkout only."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        if report.quick:
            report.figure("start.second_s", _cost([ROOT / "scripts" / "run.sh"], here, {}).seconds, "s")
            return
        speed = yardstick()
        report.figure("start.yardstick_s", speed, "s")
        _cost(["git", "clone", "--quiet", ROOT, here / "aici"], here)
        fresh = _empty(here / "home")
        command = [here / "aici" / "scripts" / "run.sh"]
        cost = _cost(command, here, fresh)
        report.figure("start.seconds", cost.seconds, "s", target=SECONDS)
        report.figure("start.cpu_s", cost.cpu_s, "s", target=CPU_S * speed / GOOD_SECONDS)
        report.figure("start.compilers", cost.compilers, "processes", target=COMPILERS)
        report.figure("start.mb", _mb(here), "MB", target=MB)
        report.figure("start.second_s", _cost(command, here, fresh).seconds, "s", target=SECOND_S)
        _wheel(report, here, speed)


def _wheel(report: Report, here: Path, speed: float) -> None:
    """Installs the wheel of the clone, and runs a bundled controller."""
    build = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", here / "aici"]
    _cost([sys.executable, *build, "--wheel-dir", here], here)
    (wheel,) = here.glob("pyaici-*.whl")
    place = here / "installed"
    place.mkdir()
    python, fresh = place / "venv" / "bin" / "python", _empty(place / "home") | {"PIP_NO_CACHE_DIR": "1"}
    commands: list[list[str | Path]] = [
        [sys.executable, "-m", "venv", place / "venv"],
        [python, "-m", "pip", "install", "--quiet", f"{wheel}[llama]"],
        [python, "-m", "pyaici.cli", "run", "regex", "--arg", "[a-z ]{9}!", "--prompt", "Hello"],
    ]
    costs = [_cost(command, place, fresh) for command in commands]
    report.figure("start.wheel_s", sum(cost.seconds for cost in costs), "s", target=WHEEL_S)
    cpu_s = sum(cost.cpu_s for cost in costs)
    report.figure("start.wheel_cpu_s", cpu_s, "s", target=CPU_S * speed / GOOD_SECONDS)
    report.figure("start.wheel_mb", _mb(place), "MB", target=WHEEL_MB)


def _empty(home: Path) -> dict[str, str]:
    """Creates an empty home and returns its variables. pip keeps the index that the user has configured."""
    home.mkdir()
    variables = {"HOME": str(home), "XDG_CACHE_HOME": str(home / ".cache")}
    settings = Path.home() / ".config" / "pip" / "pip.conf"
    return {"PIP_CONFIG_FILE": str(settings)} | variables if settings.exists() else variables


def _cost(command: Sequence[str | Path], folder: Path, variables: dict[str, str] | None = None) -> Cost:
    """Runs a command. Raises RuntimeError with its last output if it fails."""
    print("+", *command, file=sys.stderr)
    compilers: set[tuple[str, str]] = set()
    ended = threading.Event()
    watcher = threading.Thread(target=_watch_compilers, args=(folder, compilers, ended))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    watcher.start()
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env=environment | (variables or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    ended.set()
    watcher.join()
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed:\n{done.stdout[-4000:]}")
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(seconds, cpu_s, len(compilers))


def _watch_compilers(folder: Path, found: set[tuple[str, str]], ended: threading.Event) -> None:
    """Collects the processes of the Zig below a folder: their ids and starts. It may miss very short ones."""
    while not ended.wait(LOOK_S):
        for process in Path("/proc").glob("[0-9]*"):
            try:
                program = (process / "exe").readlink()
                if program.name == "zig" and program.is_relative_to(folder):
                    stat = (process / "stat").read_text()
                    found.add((process.name, stat.rpartition(")")[2].split()[19]))
            except OSError:  # ended meanwhile, or of another user
                continue


def _mb(folder: Path) -> float:
    """Returns the size of a folder on the disk, MB. A file with several links counts once."""
    # the first number of the output
    done = subprocess.run(
        ["du", "--summarize", "--block-size=MB", folder], check=True, stdout=subprocess.PIPE
    )
    return float(done.stdout.split(b"MB")[0])
