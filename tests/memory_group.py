"""A memory control group of one's own, version 1 or 2, for tests that run processes in it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MOUNT = Path("/sys/fs/cgroup")


class MemoryGroup:
    """`join` puts the calling process in it."""

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
        """Processes that the kernel has killed for the group's limit."""
        lines = (self._folder / self._kills_file).read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.split()[0] == "oom_kill")


@contextmanager
def memory_group(limit: int) -> Iterator[MemoryGroup]:
    """Below the group of this process, empty afterwards. Raises OSError where none can be made."""
    folder, files = _place()
    group = MemoryGroup(folder / f"aici-test-{os.getpid()}", *files)
    group._folder.mkdir()
    try:
        group.limit(limit)
        yield group
    finally:
        until = time.monotonic() + 10
        while True:
            try:
                group._folder.rmdir()
                break
            except OSError:  # processes that have ended are gone in a moment
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)


def _place() -> tuple[Path, tuple[str, str]]:
    """The folder of this process's own memory group, and the files for limit and kills."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return _MOUNT / "memory" / path.lstrip("/"), ("memory.limit_in_bytes", "memory.oom_control")
        if number == "0" and "memory" in _controllers(_MOUNT / path.lstrip("/")):
            return _MOUNT / path.lstrip("/"), ("memory.max", "memory.events")
    raise FileNotFoundError("this process has no memory control group")


def _controllers(folder: Path) -> list[str]:
    """What groups below a group of version 2 may limit."""
    try:
        return (folder / "cgroup.subtree_control").read_text().split()
    except OSError:
        return []
