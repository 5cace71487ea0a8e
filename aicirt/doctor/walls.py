"""Checks of the walls around untrusted code that this machine allows, tried in a child process."""

from __future__ import annotations

import json
import sys
from functools import lru_cache
from typing import Any

from aicirt.doctor.finding import Finding, State
from aicirt.system.environment import child_environment
from aicirt.system.silence import finish

_COMMAND = [sys.executable, "-P", "-m", "aicirt.sandbox"]
_WHO = "a guest that breaks out of WebAssembly"


@lru_cache(1)
def _walls() -> dict[str, Any]:
    """Returns the walls of a worker, which `python -m aicirt.sandbox` prints."""
    child = finish(_COMMAND, env=child_environment())
    child.check_returncode()
    walls: dict[str, Any] = json.loads(child.stdout)
    return walls


def landlock() -> Finding:
    """Checks Landlock, under which workers cannot open the user's files."""
    version = _walls()["landlock"]
    if version == 0:
        cure = "use Linux 5.13 or newer with Landlock, booted with lsm=landlock,..."
        cost = f"{_WHO} can read every file that the user can read"
        return Finding("Landlock", State.NOTE, "not available", cost, cure)
    if version < 6 and not _walls()["seccomp"]:
        weak = "reach TCP and signal other processes" if version < 4 else "signal other processes"
        cure = "use Linux 6.12 or newer, which has version 6"
        return Finding("Landlock", State.NOTE, f"version {version}", f"{_WHO} can {weak}", cure)
    return Finding("Landlock", State.OK, f"version {version}")


def seccomp() -> Finding:
    """Checks the filter that allows only the system calls that workers need."""
    if not _walls()["seccomp"]:
        cost = f"{_WHO} can make every system call, including one with a kernel vulnerability"
        cure = "use a kernel with CONFIG_SECCOMP_FILTER, on x86-64 or 64-bit ARM"
        return Finding("seccomp", State.NOTE, "not available", cost, cure)
    return Finding("seccomp", State.OK, "system calls are filtered")


def namespaces() -> Finding:
    """Checks namespaces, in which there is no network."""
    found = _walls()["namespaces"]
    if "network" not in found:
        cost = f"one wall fewer confines {_WHO}"
        if not _walls()["seccomp"]:
            cost = f"{_WHO} can reach the network"
        cure = "allow user namespaces: sysctl user.max_user_namespaces, or a container's seccomp profile"
        return Finding("namespaces", State.NOTE, "not allowed", cost, cure)
    return Finding("namespaces", State.OK, ", ".join(found))


def out_of_memory() -> Finding:
    """Checks which process the kernel ends first when memory runs out."""
    score = _walls()["oom_score_adj"]
    if score == 0:
        cost = "when memory runs out, the kernel may end the engine instead of a worker"
        return Finding("memory shortage", State.NOTE, "oom_score_adj cannot be set", cost, "mount /proc")
    return Finding(
        "memory shortage", State.OK, f"the kernel ends workers before the engine (oom_score_adj {score})"
    )
