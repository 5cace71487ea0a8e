"""The Zig compiler, and the user's cache of what it has made."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from .sdk import BuildError, install_command

#: artifacts are small, but every change of the SDK adds some MB of them
KEEP_SECONDS = 30 * 24 * 3600

#: what depends on sources of controllers and of the SDK, and what depends on the compiler alone
_FOLDERS = ("build", "system")

Progress = Callable[[str], None]


def print_progress(line: str) -> None:
    """Prints a line of progress to stderr at once, so that stdout contains only results."""
    print(line, file=sys.stderr, flush=True)


def cache_dir() -> Path:
    """Returns ``$XDG_CACHE_HOME/aici``, by default ``~/.cache/aici``."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # the specification requires that relative paths are ignored
    return (base if base.is_absolute() else Path.home() / ".cache") / "aici"


def digest(rule: object, root: Path, files: Iterable[Path]) -> str:
    """Returns the hex SHA-256 of ``repr(rule)`` and of the contents and relative names of `files`, in order.

    Names are relative to `root`, so that two checkouts of the same sources share their artifacts. A missing
    file counts as empty: its name is in the digest, and the compiler will report the missing file.
    """
    state = hashlib.sha256(repr(rule).encode())
    for path in files:
        content = path.read_bytes() if path.is_file() else b""
        state.update(f"\n{os.path.relpath(path, root)} {hashlib.sha256(content).hexdigest()}".encode())
    return state.hexdigest()


class Cache:
    """A cache folder; `progress` receives a line for each slow operation."""

    def __init__(self, cache: Path | None = None, progress: Progress = print_progress) -> None:
        self.cache = cache or cache_dir()
        self.progress = progress
        try:
            for folder in self.folders:
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BuildError(
                f"cannot create the cache {self.cache}: {error.strerror}; "
                "set XDG_CACHE_HOME to a writable folder"
            ) from error

    @property
    def folders(self) -> list[Path]:
        """The folders of artifacts."""
        return [self.cache / folder for folder in _FOLDERS]

    def artifact(self, digest: str, suffix: str, folder: str = "build") -> Path:
        """Returns the path in the cache of the artifact whose inputs have this digest."""
        return self.cache / folder / (digest + suffix)

    def used(self, path: Path) -> Path:
        """Marks an artifact as used; returns its path."""
        os.utime(path)
        return path

    def prune(self) -> None:
        """Removes artifacts that have not been used for `KEEP_SECONDS`."""
        oldest = time.time() - KEEP_SECONDS
        for path in (path for folder in self.folders for path in folder.iterdir()):
            with contextlib.suppress(FileNotFoundError):  # another process may prune too
                if path.stat().st_mtime < oldest:
                    path.unlink()

    @contextlib.contextmanager
    def lock(self, digest: str) -> Iterator[None]:
        """Locks an artifact against other processes that build it; reports to `progress` before waiting."""
        with open(self.artifact(digest, ".lock"), "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.progress("waiting for another build to end")
                fcntl.flock(file, fcntl.LOCK_EX)
            yield


class Toolchain(Cache):
    """A Zig compiler, and the cache of what it has made.

    Zig's own cache would have every object and precompiled header again, and 40 MB of its standard library.
    So each run of Zig has an empty one. Only controllers in Zig keep theirs, which saves 0.8 s of a build.
    """

    def __init__(self, cache: Path | None = None, progress: Progress = print_progress) -> None:
        self.zig = _find_zig()
        super().__init__(cache, progress)

    @property
    def version(self) -> str:
        """Version of Zig, such as ``0.17.0``."""
        return _zig_version(self.zig)

    def run(self, arguments: Sequence[str | Path], what: str, *, keep: bool = False) -> None:
        """Runs ``zig ARGUMENTS``; sends its warnings to `progress`. Keeps Zig's own cache if `keep`.

        Raises:
            BuildError: Zig failed; the message contains its output.
        """
        status, words = self.attempt(arguments, keep=keep)
        if status:
            raise BuildError(f"{what} failed:\n{words or f'zig ended with status {status}'}")
        if words:
            self.progress(words)

    def attempt(self, arguments: Sequence[str | Path], *, keep: bool = False) -> tuple[int, str]:
        """Runs ``zig ARGUMENTS``; returns its exit status and its output. `keep` is as in `run`."""
        command = [str(self.zig), *map(str, arguments)]
        with self._own_cache(keep) as cache:
            environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}
            done = subprocess.run(
                command, check=False, env=environment, capture_output=True, text=True, errors="replace"
            )
        return done.returncode, (done.stderr + done.stdout).strip()

    def _own_cache(self, keep: bool) -> AbstractContextManager[str]:
        if not keep:
            return tempfile.TemporaryDirectory(dir=self.cache)
        kept = self.cache / "zig"
        kept.mkdir(exist_ok=True)
        return nullcontext(str(kept))


def _find_zig() -> Path:
    found = importlib.util.find_spec("ziglang")
    places = (found.submodule_search_locations if found else None) or []
    for place in places:
        if (Path(place) / "zig").is_file():
            return Path(place) / "zig"
    raise BuildError(
        f"building a controller needs the compiler of the package ziglang: {install_command('sdk')}"
    )


@functools.cache
def _zig_version(zig: Path) -> str:
    return subprocess.run([zig, "version"], check=True, capture_output=True, text=True).stdout.strip()
