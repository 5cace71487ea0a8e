"""The Zig compiler: where it is, how it is called, its cache and the lock that guards ours."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from . import flags
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


class Toolchain:
    """One Zig compiler with one cache folder."""

    def __init__(self, cache: Path | None = None, progress: Progress = print_progress) -> None:
        self.zig = _find_zig()
        self.cache = cache or cache_dir()
        self.progress = progress
        try:
            (self.cache / "zig").mkdir(parents=True, exist_ok=True)
            (self.cache / "build").mkdir(exist_ok=True)
        except OSError as error:
            raise BuildError(
                f"cannot make the cache {self.cache}: {error.strerror}; "
                "set XDG_CACHE_HOME to a folder of yours"
            ) from error

    @property
    def version(self) -> str:
        """Version of Zig, as ``0.17.0``."""
        return _zig_version(self.zig)

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

    def run(self, arguments: Sequence[str | Path], what: str) -> None:
        """Runs ``zig ARGUMENTS``; warnings go to stderr.

        Raises:
            BuildError: Zig failed; the message carries what it printed.
        """
        cache = str(self.cache / "zig")
        environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}
        command = [str(self.zig), *map(str, arguments)]
        done = subprocess.run(
            command, check=False, env=environment, capture_output=True, text=True, errors="replace"
        )
        words = (done.stderr + done.stdout).strip()
        if done.returncode:
            raise BuildError(f"{what} failed:\n{words or f'zig ended with status {done.returncode}'}")
        if words:
            self.progress(words)

    def link_command(self, *, cxx: bool) -> tuple[str, ...]:
        """The start of a link command; builds libc first where this cache has none."""
        self._warm_up("c")
        if cxx:
            self._warm_up("c++")
        return ("c++" if cxx else "cc", *flags.LINK)

    def _warm_up(self, language: str) -> None:
        key = hashlib.sha256(repr((self.version, language, flags.LINK)).encode()).hexdigest()[:16]
        stamp = self.cache / "zig" / f"aici-warm-{key}"
        if stamp.exists():
            return
        library, source = ("libc", "") if language == "c" else ("libc++", "#include <string>\n")
        with self.lock(f"warm-{key}"):
            if stamp.exists():
                return
            self.progress(f"building {library} for Wasm, about 20 s, once")
            file = self.artifact(f"warm-{key}", ".c" if language == "c" else ".cpp")
            file.write_text(source)
            command = ["cc" if language == "c" else "c++", *flags.LINK, file, "-o", file.with_suffix(".wasm")]
            self.run(command, f"building {library} for Wasm")
            stamp.touch()

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


def _find_zig() -> Path:
    found = importlib.util.find_spec("ziglang")
    places = (found.submodule_search_locations if found else None) or []
    for place in places:
        if (Path(place) / "zig").is_file():
            return Path(place) / "zig"
    raise BuildError(
        "building a controller needs the compiler of the package ziglang: pip install 'aici[sdk]'"
    )


@functools.cache
def _zig_version(zig: Path) -> str:
    return subprocess.run([zig, "version"], check=True, capture_output=True, text=True).stdout.strip()
