"""How much memory this process can still get."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from aicirt.control_groups import readings


def free_bytes(root: Path = Path("/")) -> int:
    """Free memory of the machine, or of the fullest control group of this process if that is less.

    `root` has proc and sys. File contents that the kernel keeps for speed count as free.
    """
    found: list[float] = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = (root / "proc/meminfo").read_text().splitlines()
        found.append(int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1]) << 10)
    found += readings("memory", _version_1, _version_2, root)
    return max(0, int(min(found)))


def _version_2(folder: Path) -> int:
    limit = int((folder / "memory.max").read_text())  # without a limit it is "max", which is no number
    return limit - int((folder / "memory.current").read_text()) + _kept_files(folder, "inactive_file")


def _version_1(folder: Path) -> int:
    limit = int((folder / "memory.limit_in_bytes").read_text())
    used = int((folder / "memory.usage_in_bytes").read_text())
    return limit - used + _kept_files(folder, "total_inactive_file")


def _kept_files(folder: Path, name: str) -> int:
    lines = (folder / "memory.stat").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.split()[0] == name), 0)
