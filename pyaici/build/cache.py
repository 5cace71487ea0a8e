"""What has been built, in one folder of the user's, and the locks that guard it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from .errors import BuildError

#: artifacts are small, but every change of the SDK makes some MB of them
KEEP_SECONDS = 30 * 24 * 3600

Progress = Callable[[str], None]


def print_progress(line: str) -> None:
    """The default `Progress`: to stderr, at once, so that stdout stays the result's."""
    print(line, file=sys.stderr, flush=True)


def cache_dir() -> Path:
    """``$XDG_CACHE_HOME/aici``, by default ``~/.cache/aici``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "aici"


class Cache:
    """One cache folder; `progress` hears what takes long."""

    def __init__(self, cache: Path | None = None, progress: Progress = print_progress) -> None:
        self.cache = cache or cache_dir()
        self.progress = progress
        try:
            (self.cache / "build").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BuildError(
                f"cannot make the cache {self.cache}: {error.strerror}; "
                "set XDG_CACHE_HOME to a folder of yours"
            ) from error

    def artifact(self, digest: str, suffix: str) -> Path:
        """The place in the cache of the artifact whose inputs have this digest."""
        return self.cache / "build" / (digest + suffix)

    def used(self, path: Path) -> Path:
        """Marks an artifact as used; returns its path."""
        os.utime(path)
        return path

    def prune(self) -> None:
        """Removes artifacts that nobody has used for `KEEP_SECONDS`."""
        oldest = time.time() - KEEP_SECONDS
        for path in (self.cache / "build").iterdir():
            with contextlib.suppress(FileNotFoundError):  # another process may prune too
                if path.stat().st_mtime < oldest:
                    path.unlink()

    @contextlib.contextmanager
    def lock(self, digest: str) -> Iterator[None]:
        """Holds one artifact against other processes that make the same; says so when it has to wait."""
        with open(self.artifact(digest, ".lock"), "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.progress("waiting for another build to end")
                fcntl.flock(file, fcntl.LOCK_EX)
            yield
