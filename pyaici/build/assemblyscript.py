"""Builds a controller in AssemblyScript, a project with an ``asconfig.json``, with the asc of npm."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from .errors import BuildError, MissingToolchain
from .sdk import Sdk

CONFIG = "asconfig.json"


def is_assemblyscript(folder: Path) -> bool:
    """Returns whether a folder is a project in AssemblyScript."""
    return (folder / CONFIG).is_file()


def build_assemblyscript(folder: Path, sdk: Sdk) -> bytes:
    """Builds the target ``release`` of the project in `folder` with the SDK `sdk`; returns the module.

    Raises:
        MissingToolchain: asc is neither in ``node_modules`` of the project or a parent folder nor on PATH,
            or Node.js is missing.
        BuildError: asc fails (the error contains its messages).
    """
    asc = _find_asc(folder.resolve())
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch) / "out.wasm"
        # these options override the file
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
            raise BuildError(f"compiling {folder} failed:\n{words or f'{asc} wrote no module'}")
        return made.read_bytes()


def _find_asc(folder: Path) -> Path:
    """Returns the project's own asc, or the one on PATH; asc needs Node.js."""
    places = [above / "node_modules" / ".bin" / "asc" for above in (folder, *folder.parents)]
    found = next((place for place in places if place.is_file()), None) or shutil.which("asc")
    if found is None or shutil.which("node") is None:
        what = "asc, the compiler of AssemblyScript" if found is None else "Node.js, which asc runs on"
        raise MissingToolchain(
            f"building {folder} needs {what}: install Node.js 20 or newer (https://nodejs.org), "
            "then run npm install in this folder, or npm install --global assemblyscript"
        )
    return Path(found)
