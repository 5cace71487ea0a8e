"""C sources for tests: the C library and the kernel headers that are included in the compiler."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyaici.toolchain.zig import Toolchain

ZIG = Toolchain().zig
_LIBC = ZIG.parent / "lib" / "libc"
MUSL = _LIBC / "musl"
KERNEL = _LIBC / "include" / "any-linux-any" / "linux"

#: the C library's sources as they are compiled
_SEARCHED = [
    *(MUSL / part for part in ("src/include", "src/internal", "arch/x86_64", "arch/generic", "include")),
    *(_LIBC / "include" / part for part in ("x86_64-linux-musl", "generic-musl")),
]


def library_sources() -> list[Path]:
    """All C files of the C library, sorted."""
    return sorted((MUSL / "src").rglob("*.c"))


def preprocess(sources: Sequence[Path], folder: Path, defines: Sequence[str] = ()) -> list[str]:
    """Returns preprocessed sources of the C library, without lines that begin with #."""
    cache = {"ZIG_GLOBAL_CACHE_DIR": str(folder / "zig"), "ZIG_LOCAL_CACHE_DIR": str(folder / "zig")}
    command = [str(ZIG), "cc", "-target", "x86_64-linux-musl", "-E", "-P", "-D_XOPEN_SOURCE=700", *defines]
    command += [f"-I{place}" for place in _SEARCHED]

    def run(source: Path) -> str:
        done = subprocess.run(
            [*command, source], env={**os.environ, **cache}, capture_output=True, text=True, check=True
        )
        return done.stdout

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(run, sources))
