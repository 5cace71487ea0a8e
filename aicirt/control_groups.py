"""The control groups of this process, version 1 and 2: where their limits are read."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

#: reads a number from the folder of a group of one version; OSError or ValueError: it has none
Reader = Callable[[Path], float]


def readings(controller: str, version_1: Reader, version_2: Reader, root: Path = Path("/")) -> list[float]:
    """What the process's own group and each group above it say. `root` has proc and sys.

    In a container, groups above its own are invisible: /sys/fs/cgroup shows its own group then.
    """
    found = []
    for reader, folder in _groups(controller, version_1, version_2, root):
        with contextlib.suppress(OSError, ValueError):
            found.append(reader(folder))
    return found


def _groups(
    controller: str, version_1: Reader, version_2: Reader, root: Path
) -> Iterator[tuple[Reader, Path]]:
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    mounts = root / "sys/fs/cgroup"
    for line in lines:
        number, controllers, path = line.split(":", 2)
        parts = [part for part in path.split("/") if part not in ("", "..")]
        if number == "0":
            places = [(version_2, mounts)]
        elif controller in controllers.split(","):
            places = [(version_1, mounts / name) for name in dict.fromkeys((controllers, controller))]
        else:
            continue
        for reader, mount in places:
            for depth in range(len(parts) + 1):
                yield reader, mount.joinpath(*parts[:depth])
