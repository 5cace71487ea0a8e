"""Processors and memory available to this process: affinity, control groups, free memory, priorities."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
from collections.abc import Callable, Iterator
from pathlib import Path

#: reads a number from a control group's folder, for one version; raises OSError or ValueError if there is
#: none
Reader = Callable[[Path], float]


def readings(controller: str, version_1: Reader, version_2: Reader, root: Path = Path("/")) -> list[float]:
    """Returns the readings of the process's control group and of each group above it.

    `root` contains proc and sys. In a container, groups above the container's own are invisible:
    /sys/fs/cgroup is then that group.
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


def usable_cpus(root: Path = Path("/")) -> float:
    """Returns the usable number of processors: 1.5 for a quota of 150 ms in each 100 ms.

    `root` contains proc and sys.
    """
    return min(float(len(os.sched_getaffinity(0))), cgroup_quota(root))


def cgroup_quota(root: Path = Path("/")) -> float:
    """Returns the smallest quota of this process's control group and all above it; infinite without one."""
    return min(readings("cpu", _cpus_version_1, _cpus_version_2, root), default=float("inf"))


def _cpus_version_2(folder: Path) -> float:
    quota, period = (folder / "cpu.max").read_text().split()
    return float("inf") if quota == "max" else int(quota) / int(period)


def _cpus_version_1(folder: Path) -> float:
    quota = int((folder / "cpu.cfs_quota_us").read_text())
    period = int((folder / "cpu.cfs_period_us").read_text())
    return float("inf") if quota < 0 else quota / period


def default_worker_count() -> int:
    """Returns the number of processors minus one for the engine, limited to 1 to 8."""
    return max(1, min(8, int(usable_cpus()) - 1))


def default_thread_count(root: Path = Path("/")) -> int:
    """Returns the number of threads for a model that runs on processors, at least one.

    One usable processor stays free for the server and the workers. Two threads of a processor core share its
    units of arithmetic, so there is at most one thread for each core. `root` contains proc and sys.
    """
    allowed = os.sched_getaffinity(0)
    try:
        topology = root / "sys/devices/system/cpu"
        cores = {(topology / f"cpu{cpu}/topology/thread_siblings_list").read_text() for cpu in allowed}
    except OSError:  # some containers hide it
        cores = {str(cpu) for cpu in allowed}
    return max(1, min(len(cores), int(usable_cpus(root)) - 1))


def free_bytes(root: Path = Path("/")) -> int:
    """Returns the bytes free on the machine, or in this process's fullest control group if that is less.

    `root` contains proc and sys. Counts the kernel's file cache as free.
    """
    found: list[float] = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = (root / "proc/meminfo").read_text().splitlines()
        found.append(int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1]) << 10)
    found += readings("memory", _memory_version_1, _memory_version_2, root)
    return max(0, int(min(found)))


def _memory_version_2(folder: Path) -> int:
    limit = int((folder / "memory.max").read_text())  # "max" if there is no limit: raises ValueError
    return limit - int((folder / "memory.current").read_text()) + _kept_files(folder, "inactive_file")


def _memory_version_1(folder: Path) -> int:
    limit = int((folder / "memory.limit_in_bytes").read_text())
    used = int((folder / "memory.usage_in_bytes").read_text())
    return limit - used + _kept_files(folder, "total_inactive_file")


def _kept_files(folder: Path, name: str) -> int:
    lines = (folder / "memory.stat").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.split()[0] == name), 0)


#: Niceness of workers. If processors are scarce, the engine's step has priority over guests that compute for
#: long. This does not delay a step, since the engine sleeps while it waits for a worker.
WORKER_NICE = 5
#: Niceness of the builder and of compilers: a client waits only once for their results.
BACKGROUND_NICE = 10
#: number of the system call sched_setattr, for which older C libraries have no function
_SCHED_SETATTR = {"x86_64": 314, "AMD64": 314, "aarch64": 274, "arm64": 274}


class _Attributes(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_uint32),
        ("policy", ctypes.c_uint32),
        ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32),
        ("runtime", ctypes.c_uint64),
        ("deadline", ctypes.c_uint64),
        ("period", ctypes.c_uint64),
    )


def take_short_turns(seconds: float) -> bool:
    """Requests short time slices, which start sooner, for this thread and those that it starts from now on.

    From Linux 6.12 on, a woken thread with a short slice need not wait for the end of a longer slice (a few
    milliseconds). Older kernels accept the request and ignore it. Returns False if the request failed.
    """
    number = _SCHED_SETATTR.get(platform.machine())
    if number is None:
        return False
    wish = _Attributes(
        size=ctypes.sizeof(_Attributes),
        nice=os.getpriority(os.PRIO_PROCESS, 0),
        runtime=int(seconds * 1e9),
    )
    return not ctypes.CDLL(None, use_errno=True).syscall(number, 0, ctypes.byref(wish), 0)


def give_way(nice: int) -> None:
    """Gives this process, and threads that it starts from now on, at least this niceness."""
    os.setpriority(os.PRIO_PROCESS, 0, max(os.getpriority(os.PRIO_PROCESS, 0), nice))
