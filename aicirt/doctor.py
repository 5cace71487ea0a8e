"""Checks of this machine: which features are missing, what that costs, and how to get them.

Each check can also run alone. Checks that need a guest or a sandbox run in a child process, to keep
wasmtime's signal handlers and the layers out of the caller.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any

from aicirt.contract.errors import RuntimeFailure, SpaceError, counted
from aicirt.ipc.segment import Layout, Segment
from aicirt.modules.store import MOVE, default_directory
from aicirt.settings import MIN_WORKER_MEMORY, WorkerSettings, share_memory
from aicirt.system.files import private_directory
from aicirt.system.pace import pace
from aicirt.system.processes import CURE, User, child_environment
from aicirt.system.resources import cgroup_quota, default_worker_count, free_bytes, usable_cpus
from aicirt.system.silence import finish

#: vocabulary and rows of a typical engine, for which shared memory must suffice
_SEGMENT = Layout(131_072, num_rows=512, num_dense=4)
_MEMORY_FILES = 1024
_MAPPINGS = 65_530
_GUESTS = [sys.executable, "-P", "-m", "aicirt.wasm.selfcheck"]
_WALLS = [sys.executable, "-P", "-m", "aicirt.sandbox"]
_WHO = "a guest that breaks out of WebAssembly"


class State(Enum):
    """Severity of a finding."""

    OK = "ok"
    #: works, but less well or less safely
    NOTE = "note"
    #: nothing works without it
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check. `cost` and `cure` are empty if they do not apply."""

    name: str
    state: State
    found: str
    cost: str = ""
    cure: str = ""


def examine() -> list[Finding]:
    """Runs all checks, in order of importance. Never raises: a check that fails gives a NOTE."""
    checks: tuple[Callable[[], Finding], ...] = (
        system,
        python,
        run_guests,
        shared_memory,
        memory_files,
        processors,
        stack,
        open_files,
        mappings,
        overcommit,
        memory,
        changed_pages,
        landlock,
        seccomp,
        namespaces,
        out_of_memory,
        worker_user,
        store,
    )
    found = []
    for check in checks:
        try:
            found.append(check())
        except Exception as error:  # shows that something is wrong, but not what
            name = check.__name__.replace("_", " ")
            found.append(Finding(name, State.NOTE, f"this check failed: {error!r}"))
    return found


def system() -> Finding:
    """Checks for Linux with pidfds, on a processor that keeps the order of stores."""
    name = f"{platform.system()} {platform.release()} on {platform.machine()}"
    if platform.system() != "Linux":
        return Finding("system", State.MISSING, name, "nothing works", "use Linux, or a VM with Linux")
    try:
        fd = os.pidfd_open(os.getpid())
        try:
            signal.pidfd_send_signal(fd, 0)
        finally:
            os.close(fd)
    except OSError:
        cost = "aicirt cannot watch its workers"
        return Finding("system", State.MISSING, name, cost, "use Linux 5.3 or newer")
    if platform.machine() not in ("x86_64", "AMD64"):
        cost = "processes do not poll for messages before they sleep: about 50 us more per step"
        return Finding(
            "system", State.NOTE, name, cost, "use an x86 processor: polling relies on its store order"
        )
    return Finding("system", State.OK, name)


def python() -> Finding:
    """Reports the version of Python; versions before 3.11 cannot install this package."""
    return Finding("Python", State.OK, f"{platform.python_version()} ({sys.executable})")


def shared_memory() -> Finding:
    """Checks for room for the segment of an engine and a worker."""
    name, found = "shared memory", f"{_SEGMENT.total / 1e6:.0f} MB for each engine and worker"
    try:
        Segment.create(_SEGMENT).close()
    except SpaceError as error:
        return Finding(name, State.MISSING, found, "nothing works", error.message)
    return Finding(name, State.OK, found)


def memory_files() -> Finding:
    """Checks sealed memory files, which hold snapshots and vocabularies."""
    from aicirt.system.files import check_sealed, sealed

    try:
        fd = sealed("aici-doctor", 4096, [])
        try:
            check_sealed(fd, 4096)
        finally:
            os.close(fd)
    except (OSError, RuntimeFailure) as error:
        cure = "allow memfd_create (a container's seccomp profile)"
        return Finding("memory files", State.MISSING, str(error), "nothing works", cure)
    return Finding("memory files", State.OK, "memfd with seals")


def processors() -> Finding:
    """Checks that there is a processor for the engine and one for a worker."""
    allowed, quota, usable = len(os.sched_getaffinity(0)), cgroup_quota(), usable_cpus()
    found = f"{allowed} allowed" + (f", a quota of {quota:g}" if quota < allowed else "")
    workers = counted(default_worker_count(), "worker")
    found += f": {workers}; {pace():g} times the CPU time of the reference machine"
    if usable < 2:
        cost = "engine and worker share one processor: masks are not computed while the model runs"
        return Finding(
            "processors", State.NOTE, found, cost, "allow two processors (taskset, --cpus, cpu.max)"
        )
    return Finding("processors", State.OK, found)


def stack(soft: int | None = None) -> Finding:
    """Checks the stack size, for guests and the host functions that they call."""
    from aicirt.settings import STACK_MARGIN, WASM_STACK

    soft = resource.getrlimit(resource.RLIMIT_STACK)[0] if soft is None else soft
    found = "unlimited" if soft == resource.RLIM_INFINITY else f"{soft >> 10} KiB"
    if soft != resource.RLIM_INFINITY and soft < WASM_STACK + STACK_MARGIN:
        return Finding("stack", State.MISSING, found, "workers do not start", "ulimit -s 8192")
    return Finding("stack", State.OK, found)


def open_files(soft: int | None = None) -> Finding:
    """Checks the limit on open files: each memoised controller is an open file."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if soft is None else soft
    if soft < _MEMORY_FILES:
        cost = "aicirt keeps fewer controller snapshots (default: 256) and serves fewer clients"
        return Finding("open files", State.NOTE, str(soft), cost, f"ulimit -n {_MEMORY_FILES}")
    return Finding("open files", State.OK, str(soft))


def mappings(root: Path = Path("/")) -> Finding:
    """Checks the limit on memory mappings: each sequence has about ten."""
    most = int((root / "proc/sys/vm/max_map_count").read_text())
    if most < _MAPPINGS:
        cost = f"a worker has room for about {most // 10} sequences"
        return Finding("memory mappings", State.NOTE, str(most), cost, f"sysctl vm.max_map_count={_MAPPINGS}")
    return Finding("memory mappings", State.OK, str(most))


def overcommit(root: Path = Path("/")) -> Finding:
    """Checks the address space: each sequence reserves 4 GiB of addresses and uses about 100 KiB."""
    mode = int((root / "proc/sys/vm/overcommit_memory").read_text())
    hard = resource.getrlimit(resource.RLIMIT_AS)[0]
    if hard != resource.RLIM_INFINITY:
        cost = f"a worker has room for about {max(0, (hard >> 32) - 1)} sequences"
        return Finding("address space", State.NOTE, f"{hard >> 30} GiB", cost, "ulimit -v unlimited")
    return Finding("address space", State.OK, f"unlimited, overcommit mode {mode}")


def memory(free: int | None = None) -> Finding:
    """Checks the free memory, for the guests of all workers and of the builder."""
    free = free_bytes() if free is None else free
    processes = default_worker_count() + 1
    share = share_memory(WorkerSettings(), processes, free).worker_memory_bytes
    found = f"{free >> 20} MiB free: {share >> 20} MiB for the controllers of each worker"
    if share <= MIN_WORKER_MEMORY:
        cost = "one controller may use all of it (memory_bytes), and all workers may use more than is free"
        cure = (
            "add memory, or start aici runtime with --limit memory_bytes=... --limit worker_memory_bytes=..."
        )
        return Finding("memory", State.NOTE, found, cost, cure)
    return Finding("memory", State.OK, found)


def worker_user(name: str = "nobody") -> Finding:
    """Checks whether workers can run as another user."""
    cost = "a guest that breaks out of its sandbox has the rights of the user who started aicirt"
    try:
        problem = User.find(name).problem()
    except RuntimeFailure as error:
        problem = str(error)
    if problem:
        return Finding("worker user", State.NOTE, f"not possible: {problem}", cost, CURE)
    found = "possible (aici runtime --worker-user NAME): a guest that breaks out has only that user's rights"
    return Finding("worker user", State.OK, found)


def store(folder: Path | None = None) -> Finding:
    """Checks the folder of the module store."""
    folder = folder or default_directory()
    try:
        private_directory(folder / "compiled")
        free = shutil.disk_usage(folder).free
    except (OSError, RuntimeFailure) as error:
        return Finding("module store", State.MISSING, str(error), "nothing works", MOVE)
    if not os.access(folder, os.W_OK):
        return Finding(
            "module store", State.NOTE, f"{folder} is read-only", "only stored modules can be used"
        )
    if free < 100 << 20:
        return Finding("module store", State.NOTE, f"{free >> 20} MB free in {folder}", "uploads may fail")
    return Finding("module store", State.OK, f"{folder}, {free / 1e9:.0f} GB free")


@lru_cache(1)
def _guests() -> tuple[dict[str, str], str]:
    """Runs the child process; returns its answers and its last line of errors."""
    child = finish(_GUESTS, env=child_environment())
    answers = dict(line.partition(" ")[::2] for line in child.stdout.splitlines())
    errors = child.stderr.strip().splitlines()[-1:] or [f"the check ended with status {child.returncode}"]
    return answers, errors[0]


def run_guests() -> Finding:
    """Checks that guests can be compiled, run, trap, and are interrupted by time limits."""
    answers, error = _guests()
    if "guests" not in answers or "changes" not in answers:
        cure = "reinstall wasmtime; if no thread can be created, raise ulimit -u"
        return Finding("guests", State.MISSING, error, "no controller can run", cure)
    return Finding("guests", State.OK, "run, trap and are interrupted by time limits")


def changed_pages() -> Finding:
    """Checks for PAGEMAP_SCAN, with which forks find the pages to copy."""
    answers, error = _guests()
    if answers.get("changes") == "PageScanner":
        return Finding("PAGEMAP_SCAN", State.OK, "available")
    if "changes" not in answers:
        return Finding("PAGEMAP_SCAN", State.MISSING, error, "forks do not work", "mount /proc")
    cost = "a fork checks every page of a guest's memory: about 50 us more for 16 MB"
    return Finding("PAGEMAP_SCAN", State.NOTE, "not available", cost, "use Linux 6.7 or newer")


@lru_cache(1)
def _layers() -> dict[str, Any]:
    """Returns the layers of a worker, which `python -m aicirt.sandbox` prints."""
    child = finish(_WALLS, env=child_environment())
    child.check_returncode()
    layers: dict[str, Any] = json.loads(child.stdout)
    return layers


def landlock() -> Finding:
    """Checks Landlock, under which workers cannot open the user's files."""
    version = _layers()["landlock"]
    if version == 0:
        cure = "use Linux 5.13 or newer with Landlock, booted with lsm=landlock,..."
        cost = f"{_WHO} can read every file that the user can read"
        return Finding("Landlock", State.NOTE, "not available", cost, cure)
    if version < 6 and not _layers()["seccomp"]:
        weak = "reach TCP and signal other processes" if version < 4 else "signal other processes"
        cure = "use Linux 6.12 or newer, which has version 6"
        return Finding("Landlock", State.NOTE, f"version {version}", f"{_WHO} can {weak}", cure)
    return Finding("Landlock", State.OK, f"version {version}")


def seccomp() -> Finding:
    """Checks the filter that allows only the system calls that workers need."""
    if not _layers()["seccomp"]:
        cost = f"{_WHO} can make every system call, including one with a kernel vulnerability"
        cure = "use a kernel with CONFIG_SECCOMP_FILTER, on x86-64 or 64-bit ARM"
        return Finding("seccomp", State.NOTE, "not available", cost, cure)
    return Finding("seccomp", State.OK, "system calls are filtered")


def namespaces() -> Finding:
    """Checks namespaces, in which there is no network."""
    found = _layers()["namespaces"]
    if "network" not in found:
        cost = f"one layer fewer confines {_WHO}"
        if not _layers()["seccomp"]:
            cost = f"{_WHO} can reach the network"
        cure = "allow user namespaces: sysctl user.max_user_namespaces, or a container's seccomp profile"
        return Finding("namespaces", State.NOTE, "not allowed", cost, cure)
    return Finding("namespaces", State.OK, ", ".join(found))


def out_of_memory() -> Finding:
    """Checks which process the kernel ends first when memory runs out."""
    score = _layers()["oom_score_adj"]
    if score == 0:
        cost = "when memory runs out, the kernel may end the engine instead of a worker"
        return Finding("memory shortage", State.NOTE, "oom_score_adj cannot be set", cost, "mount /proc")
    return Finding(
        "memory shortage", State.OK, f"the kernel ends workers before the engine (oom_score_adj {score})"
    )
