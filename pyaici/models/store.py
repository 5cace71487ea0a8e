"""Builds folders once and atomically."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from aicirt.system.files import cache_folder
from pyaici.models.errors import ModelError

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
