from __future__ import annotations

import os
from pathlib import Path

import pytest

from aicirt.system.resources import cgroup_quota, default_worker_count, usable_cpus


def put(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({}, float("inf")),
        ({"proc/self/cgroup": "0::/\n"}, float("inf")),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, float("inf")),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1.5),
        (
            {
                "proc/self/cgroup": "0::/user/engine\n",
                "sys/fs/cgroup/user/cpu.max": "200000 100000\n",
                "sys/fs/cgroup/user/engine/cpu.max": "600000 100000\n",
            },
            2.0,
        ),
        # a container whose cgroup path is outside the part that it sees
        ({"proc/self/cgroup": "0::/../other\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"}, 0.5),
        (
            {
                "proc/self/cgroup": "7:memory:/x\n5:cpu,cpuacct:/x\n",
                "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us": "300000\n",
                "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            },
            3.0,
        ),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "nonsense\n"}, float("inf")),
    ],
)
def test_quota_and_usable_processors(tmp_path: Path, files: dict[str, str], quota: float) -> None:
    root = put(tmp_path, files)
    assert cgroup_quota(root) == quota
    assert usable_cpus(root) == min(quota, len(os.sched_getaffinity(0)))


@pytest.mark.parametrize(("cpus", "workers"), [(0.5, 1), (1.0, 1), (2.0, 1), (3.5, 2), (8.0, 7), (64.0, 8)])
def test_workers_leave_a_processor_to_the_engine(
    monkeypatch: pytest.MonkeyPatch, cpus: float, workers: int
) -> None:
    monkeypatch.setattr("aicirt.system.resources.usable_cpus", lambda: cpus)
    assert default_worker_count() == workers
