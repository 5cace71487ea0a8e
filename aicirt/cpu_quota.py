"""How many processors this process may use: affinity, and the quotas of control groups."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path


def usable_cpus(root: Path = Path("/")) -> float:
    """Processors' worth of time: 1.5 under a quota of 150 ms in each 100 ms. `root` has proc and sys."""
    return min(float(len(os.sched_getaffinity(0))), cgroup_quota(root))


def cgroup_quota(root: Path = Path("/")) -> float:
    """The least quota of this process's control group and all above it; infinite if there is none.

    In a container the groups above its own are not to be seen: what /sys/fs/cgroup shows is its own then.
    """
    quotas = [float("inf")]
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            number, controllers, path = line.split(":", 2)
            if number == "0":
                quotas += _walk(root / "sys/fs/cgroup", path, _version_2)
            elif "cpu" in controllers.split(","):
                for mount in (controllers, "cpu"):
                    quotas += _walk(root / "sys/fs/cgroup" / mount, path, _version_1)
    return min(quotas)


def _walk(mount: Path, path: str, read: Callable[[Path], float]) -> list[float]:
    parts = [part for part in path.split("/") if part not in ("", "..")]
    found = []
    for depth in range(len(parts) + 1):
        with contextlib.suppress(OSError, ValueError):
            found.append(read(mount.joinpath(*parts[:depth])))
    return found


def _version_2(folder: Path) -> float:
    quota, period = (folder / "cpu.max").read_text().split()
    return float("inf") if quota == "max" else int(quota) / int(period)


def _version_1(folder: Path) -> float:
    quota = int((folder / "cpu.cfs_quota_us").read_text())
    period = int((folder / "cpu.cfs_period_us").read_text())
    return float("inf") if quota < 0 else quota / period


def default_worker_count() -> int:
    """One per processor less one for the engine, 1 to 8."""
    return max(1, min(8, int(usable_cpus()) - 1))
