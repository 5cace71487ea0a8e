"""Finds and runs the Zig compiler."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from . import flags
from .cache import Cache, Progress, print_progress
from .errors import BuildError
from .sdk import install_command


class Toolchain(Cache):
    """A Zig compiler with its cache folder."""

    def __init__(self, cache: Path | None = None, progress: Progress = print_progress) -> None:
        self.zig = _find_zig()
        super().__init__(cache, progress)
        (self.cache / "zig").mkdir(exist_ok=True)

    @property
    def version(self) -> str:
        """Version of Zig, such as ``0.17.0``."""
        return _zig_version(self.zig)

    def run(self, arguments: Sequence[str | Path], what: str) -> None:
        """Runs ``zig ARGUMENTS``; sends its warnings to `progress`.

        Raises:
            BuildError: Zig failed; the message contains its output.
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
        """Returns the start of a link command; builds libc (and libc++) first if the cache lacks it."""
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
