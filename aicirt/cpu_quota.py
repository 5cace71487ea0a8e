"""How many processors this process may use: affinity, and the quotas of control groups."""

from __future__ import annotations

import os
from pathlib import Path

from aicirt.control_groups import readings


def usable_cpus(root: Path = Path("/")) -> float:
    """Processors' worth of time: 1.5 under a quota of 150 ms in each 100 ms. `root` has proc and sys."""
    return min(float(len(os.sched_getaffinity(0))), cgroup_quota(root))


def cgroup_quota(root: Path = Path("/")) -> float:
    """The least quota of this process's control group and all above it; infinite if there is none."""
    return min(readings("cpu", _version_1, _version_2, root), default=float("inf"))


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
