from __future__ import annotations

from pathlib import Path

import pytest

from aicirt.system.resources import free_bytes


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"proc/meminfo": "MemTotal: 9 kB\nMemAvailable:  5 kB\n"}, 5 << 10),
        (
            {
                "proc/meminfo": "MemAvailable: 5000 kB\n",
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/memory.max": "3000\n",
                "sys/fs/cgroup/a/memory.current": "1500\n",
                "sys/fs/cgroup/a/memory.stat": "anon 1000\ninactive_file 400\n",
                "sys/fs/cgroup/a/b/memory.max": "max\n",
                "sys/fs/cgroup/a/b/memory.current": "10\n",
            },
            1900,
        ),
        (
            {
                "proc/meminfo": "MemAvailable: 5000 kB\n",
                "proc/self/cgroup": "7:cpu:/x\n5:memory:/y\n",
                "sys/fs/cgroup/memory/y/memory.limit_in_bytes": "3000\n",
                "sys/fs/cgroup/memory/y/memory.usage_in_bytes": "3100\n",
                "sys/fs/cgroup/memory/y/memory.stat": "cache 1\n",
            },
            0,
        ),
    ],
    ids=["machine", "version 2", "version 1"],
)
def test_free_memory_respects_cgroup_limits(tmp_path: Path, files: dict[str, str], expected: int) -> None:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert free_bytes(tmp_path) == expected
