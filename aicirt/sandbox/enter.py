"""Closes a process in: puts up all walls of its profile that the machine allows."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aicirt.sandbox import kernel, landlock, seccomp
from aicirt.sandbox.namespaces import enter_namespaces
from aicirt.sandbox.profile import Profile

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_OOM = Path("/proc/self/oom_score_adj")


@dataclass(frozen=True, slots=True)
class Walls:
    """The walls that stand around a process; `aici doctor` and `health` show them."""

    #: version of the kernel's Landlock interface; 0 if there is none
    landlock: int
    #: whether system calls are filtered
    seccomp: bool
    #: names of the namespaces that the process has to itself
    namespaces: tuple[str, ...]
    oom_score_adj: int

    def to_wire(self) -> dict[str, Any]:
        """Returns the walls by name."""
        return asdict(self)


def die_with(parent: int) -> None:
    """Has the kernel end this process when its parent ends. Exits if `parent` has ended already.

    Call this after a change of user, which would clear the signal.
    """
    kernel.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the signal was set
        sys.exit(1)


def enter(profile: Profile) -> Walls:
    """Confines this process for ever, so that code which breaks out of WebAssembly finds little.

    Call this before the process makes threads or reads anything hostile, and after it has opened what it
    needs of /proc/self, which then belongs to root. Leaves out what the kernel or a container forbids. Raises
    OSError if the kernel refuses something that it has.
    """
    time.tzset()  # reads a file the first time that something is logged
    oom_score_adj = _prefer_to_end(profile.oom_score_adj)
    namespaces = enter_namespaces()
    kernel.drop_capabilities()
    kernel.prctl(_PR_SET_NO_NEW_PRIVS, 1)
    version = landlock.restrict(profile.readable())
    for limit, value in profile.limits.items():
        resource.setrlimit(limit, (value, value))
    kernel.set_dumpable(False)
    filtered = seccomp.install(profile.calls())
    return Walls(version, filtered, namespaces, oom_score_adj)


def _prefer_to_end(score: int) -> int:
    """Returns the score that holds: it can be raised only, and not everywhere."""
    try:
        before = int(_OOM.read_text(encoding="ascii"))
        if before >= score:
            return before
        _OOM.write_text(str(score), encoding="ascii")
    except OSError:
        return 0
    return score
