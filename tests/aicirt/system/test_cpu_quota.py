from __future__ import annotations

import os
from pathlib import Path

import pytest

from aicirt.system.resources import cgroup_quota, default_thread_count, default_worker_count, usable_cpus
from pyaici.engines.llama.program import choose_threads


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


@pytest.mark.parametrize(
    ("cpus", "hyperthreads", "quota", "threads"),
    [
        (1, False, "max", 1),
        (2, False, "max", 1),
        (8, False, "max", 7),
        (8, True, "max", 4),
        (8, False, "450000", 3),
        (8, True, "50000", 1),
    ],
)
def test_a_model_has_a_thread_for_each_core_but_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cpus: int, hyperthreads: bool, quota: str, threads: int
) -> None:
    files = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": f"{quota} 100000\n"}
    for cpu in range(cpus):
        siblings = f"{cpu - cpu % 2}-{cpu - cpu % 2 + 1}" if hyperthreads else f"{cpu}"
        files[f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"] = f"{siblings}\n"
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cpus)))
    assert default_thread_count(put(tmp_path, files)) == threads
    (tmp_path / "sys/devices/system/cpu/cpu0/topology/thread_siblings_list").unlink()
    assert default_thread_count(tmp_path) >= threads, "a container may hide the topology"


def test_too_many_threads_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyaici.engines.llama.program.usable_cpus", lambda: 2.0)
    told: list[str] = []
    assert [choose_threads(number, told.append) for number in (1, 2, 8)] == [1, 2, 8]
    assert told[:2] == ["llama.cpp uses 1 thread", "llama.cpp uses 2 threads"]
    assert told[2].startswith("llama.cpp uses 8 threads, more than the 2 usable processors: ")
    assert choose_threads(None, told.append) == default_thread_count()
