"""A copy of the checkout and a wheel built from it, for tests of what users install."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = (sys.executable, "-m", "build", "--no-isolation")


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Returns the standard output of a command. Fails the test with all output if the command fails."""
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **(env or {})}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (
        f"{command} ended with status {done.returncode}\n{done.stdout}\n{done.stderr}"
    )
    return done.stdout


def copy_checkout(folder: Path) -> Path:
    """Copies the files that git tracks or would add, without build outputs. Returns the copy's folder."""
    copy = folder / "aici"
    listing = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    for name in filter(None, listing.split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    return copy


def build_wheel(checkout: Path, folder: Path) -> Path:
    """Builds the wheel of a checkout into a folder."""
    run(*BUILD, "--wheel", "--outdir", folder, checkout, cwd=checkout)
    (wheel,) = folder.glob("*.whl")
    return wheel
