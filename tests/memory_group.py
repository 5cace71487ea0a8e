"""A private memory control group, version 1 or 2, for tests that run processes in it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab.system.waiting import PATIENCE

_MOUNT = Path("/sys/fs/cgroup")


class MemoryGroup:
    """A memory control group. `join` moves the calling process into it."""

    def __init__(self, folder: Path, limit_file: str, kills_file: str) -> None:
        self._folder = folder
        self._limit_file = limit_file
        self._kills_file = kills_file

    def limit(self, nbytes: int) -> None:
        (self._folder / self._limit_file).write_text(str(nbytes))

    def join(self) -> None:
        (self._folder / "cgroup.procs").write_text(str(os.getpid()))

    @property
    def kills(self) -> int:
        """Number of processes that the kernel has killed for the group's limit."""
        lines = (self._folder / self._kills_file).read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.split()[0] == "oom_kill")


@contextmanager
def memory_group(limit: int) -> Iterator[MemoryGroup]:
    """Creates a group below the group of this process and removes it. Raises OSError if it cannot."""
    folder, files = _place()
    group = MemoryGroup(folder / f"aici-test-{os.getpid()}", *files)
    group._folder.mkdir()
    try:
        group.limit(limit)
        yield group
    finally:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                group._folder.rmdir()
                break
            except OSError:  # ended processes leave the group after a moment
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)


def _place() -> tuple[Path, tuple[str, str]]:
    """Returns the folder of this process's memory group, and the names of the files for limit and kills."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return _MOUNT / "memory" / path.lstrip("/"), ("memory.limit_in_bytes", "memory.oom_control")
        if number == "0" and "memory" in _controllers(_MOUNT / path.lstrip("/")):
            return _MOUNT / path.lstrip("/"), ("memory.max", "memory.events")
    raise FileNotFoundError("this process has no memory control group")


def _controllers(folder: Path) -> list[str]:
    """Returns the controllers that are enabled below a group of version 2."""
    try:
        return (folder / "cgroup.subtree_control").read_text().split()
    except OSError:
        return []
