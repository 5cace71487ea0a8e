"""Builds a controller in AssemblyScript: a project with an ``asconfig.json``, by the asc of npm."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from .errors import BuildError, MissingToolchain
from .sdk import Sdk

CONFIG = "asconfig.json"


def is_assemblyscript(folder: Path) -> bool:
    """Is it a project in AssemblyScript?"""
    return (folder / CONFIG).is_file()


def build_assemblyscript(folder: Path, sdk: Sdk) -> bytes:
    """The module of the project in `folder`: its target ``release``, with the SDK of this machine.

    Raises:
        MissingToolchain: there is no asc, neither in the project's ``node_modules`` nor on PATH.
        BuildError: asc fails (its messages are in the error).
    """
    asc = _find_asc(folder.resolve())
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch) / "out.wasm"
        # what is said here wins over what the file says
        options = ["--lib", str(sdk.assemblyscript), "--outFile", str(made)]
        done = subprocess.run(
            [asc, "--config", CONFIG, "--target", "release", *options],
            cwd=folder,
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
        )
        words = (done.stdout + done.stderr).strip()
        if done.returncode or not made.is_file():
            raise BuildError(f"compiling {folder} failed:\n{words or f'{asc} made no module'}")
        return made.read_bytes()


def _find_asc(folder: Path) -> Path:
    """The project's own compiler, or the one on PATH; it is a program for Node.js."""
    places = [above / "node_modules" / ".bin" / "asc" for above in (folder, *folder.parents)]
    found = next((place for place in places if place.is_file()), None) or shutil.which("asc")
    if found is None or shutil.which("node") is None:
        what = "asc, the compiler of AssemblyScript" if found is None else "Node.js, which asc runs on"
        raise MissingToolchain(
            f"building {folder} needs {what}: install Node.js 20 or newer (https://nodejs.org), "
            "then run npm install in this folder, or npm install --global assemblyscript"
        )
    return Path(found)
