"""How much memory the cache may take, where nobody has said so."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import torch

from pyaici.engines.hf.cache import MIN_TOKENS

#: The share of the free memory that the cache may take. The rest is for passes over long prompts, and on the
#: CPU for all other programs, which take more of it later.
SHARE = {"cpu": 0.5, "cuda": 0.8}


def cache_limit(asked: int | Literal["auto"] | None, device: torch.device, token_bytes: int) -> int | None:
    """Most tokens of a cache whose tokens take so many bytes each, on this device; None = no limit.

    "auto" is as many as there is memory for now. Raises ValueError for a number below `MIN_TOKENS`.
    """
    if asked is None:
        return None
    if asked == "auto":
        free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else free_bytes()
        share = SHARE.get(device.type, SHARE["cpu"])
        return max(MIN_TOKENS, int(free * share) // max(1, token_bytes))
    if asked < MIN_TOKENS:
        raise ValueError(f"cache_tokens is {asked}; it must be at least {MIN_TOKENS}")
    return asked


def free_bytes(root: Path = Path("/")) -> int:
    """Memory that this process can still get: the machine's, and what its control groups leave of theirs.

    `root` has proc and sys. File contents that the kernel keeps for speed count as free.
    """
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = (root / "proc/meminfo").read_text().splitlines()
        found.append(int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1]) << 10)
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            number, controllers, path = line.split(":", 2)
            if number == "0":
                found += _walk(root / "sys/fs/cgroup", path, _version_2)
            elif "memory" in controllers.split(","):
                found += _walk(root / "sys/fs/cgroup/memory", path, _version_1)
    return max(0, min(found))


def _walk(mount: Path, path: str, read: Callable[[Path], int]) -> list[int]:
    """Of the group and all above it, as far as they can be seen."""
    parts = [part for part in path.split("/") if part not in ("", "..")]
    found = []
    for depth in range(len(parts) + 1):
        with contextlib.suppress(OSError, ValueError):  # no limit is "max", which is no number
            found.append(read(mount.joinpath(*parts[:depth])))
    return found


def _version_2(folder: Path) -> int:
    limit = int((folder / "memory.max").read_text())
    return limit - int((folder / "memory.current").read_text()) + _kept_files(folder, "inactive_file")


def _version_1(folder: Path) -> int:
    limit = int((folder / "memory.limit_in_bytes").read_text())
    used = int((folder / "memory.usage_in_bytes").read_text())
    return limit - used + _kept_files(folder, "total_inactive_file")


def _kept_files(folder: Path, name: str) -> int:
    lines = (folder / "memory.stat").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.split()[0] == name), 0)
