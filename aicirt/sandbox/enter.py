"""Confines a process: applies all layers of its profile that the machine allows."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from aicirt.sandbox import calls, kernel, landlock, seccomp
from aicirt.sandbox.landlock import Access
from aicirt.sandbox.seccomp import Filter

_IPC, _USER, _NET = 0x0800_0000, 0x1000_0000, 0x4000_0000
_NAMES = {_USER: "user", _NET: "network", _IPC: "ipc"}


def enter_namespaces() -> tuple[str, ...]:
    """Moves this process, while it has one thread, into new namespaces; returns their names, if any.

    Writes no map of user ids, since the process does not need its user's name and uses no other user.
    """
    # root in a container may lack user namespaces but have the right to create the others
    for flags in (_USER | _NET | _IPC, _NET | _IPC):
        try:
            kernel.unshare(flags)
        except OSError:
            continue
        return tuple(name for flag, name in _NAMES.items() if flags & flag)
    return ()


_READ = Access.READ_FILE | Access.READ_DIR
#: system libraries for Python packages that are imported later
_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache")


@dataclass(frozen=True, slots=True)
class Profile:
    """The rights of one kind of process."""

    name: str
    #: creates the filter of its system calls, which contains the process id
    calls: Callable[[], Filter]
    #: paths that it may open, each with its access rights
    opens: tuple[tuple[str, Access], ...] = ()
    #: whether it may read Python's own files and system libraries, to import modules on demand
    imports: bool = False
    #: resource limits, by RLIMIT_*
    limits: Mapping[int, int] = field(default_factory=dict)
    #: preference (up to 1000) for killing this process when memory runs out, before the engine and the
    #: daemon, which have the inherited 0: https://docs.kernel.org/filesystems/proc.html
    oom_score_adj: int = 0

    def readable(self) -> list[tuple[Path, Access]]:
        """Returns (path, access) for each rule for Landlock."""
        libraries = {sys.prefix, sys.base_prefix, *sys.path, *_LIBRARIES} if self.imports else set()
        rules = [*self.opens, *((path, _READ) for path in sorted(libraries) if path)]
        return [(Path(path), access) for path, access in rules]


#: runs guests of many clients. Its working directory holds compiled modules
WORKER = Profile(
    "worker",
    calls.worker,
    opens=((".", _READ),),
    imports=True,
    limits={resource.RLIMIT_CORE: 0},
    oom_score_adj=900,
)
#: runs `aici_init`: if the builder is killed, requests wait but do not fail
BUILDER = replace(WORKER, name="builder", oom_score_adj=950)
#: compiles one module: its input and output are already open, and it needs nothing else
COMPILER = Profile(
    "compiler",
    calls.compiler,
    limits={resource.RLIMIT_CORE: 0, resource.RLIMIT_NPROC: 0, resource.RLIMIT_NOFILE: 0},
    oom_score_adj=1000,
)


_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_OOM = Path("/proc/self/oom_score_adj")


@dataclass(frozen=True, slots=True)
class SandboxLayers:
    """The active layers around a process; `aici doctor` and `health` report them."""

    #: version of the kernel's Landlock interface; 0 if there is none
    landlock: int
    #: whether system calls are filtered
    seccomp: bool
    #: names of the namespaces that belong to the process alone
    namespaces: tuple[str, ...]
    oom_score_adj: int

    def to_wire(self) -> dict[str, Any]:
        """Returns the layers by name."""
        return asdict(self)


def die_with(parent: int) -> None:
    """Makes the kernel kill this process when its parent ends. Exits if `parent` has already ended.

    Call this after a change of user, which would clear the signal.
    """
    kernel.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the signal was set
        sys.exit(1)


def enter(profile: Profile) -> SandboxLayers:
    """Confines this process for ever, so that code which breaks out of WebAssembly can do little.

    Call this before the process starts threads or reads hostile input, and after it has opened the files that
    it needs in /proc/self, which then belongs to root. Skips layers that the kernel or a container does not
    allow. Raises OSError if the kernel refuses a layer that it supports.
    """
    time.tzset()  # reads a file, which logging would otherwise read later
    oom_score_adj = _prefer_to_end(profile.oom_score_adj)
    namespaces = enter_namespaces()
    kernel.drop_capabilities()
    kernel.prctl(_PR_SET_NO_NEW_PRIVS, 1)
    version = landlock.restrict(profile.readable())
    for limit, value in profile.limits.items():
        resource.setrlimit(limit, (value, value))
    kernel.set_dumpable(False)
    filtered = seccomp.install(profile.calls())
    return SandboxLayers(version, filtered, namespaces, oom_score_adj)


def _prefer_to_end(score: int) -> int:
    """Raises oom_score_adj to `score`, where that is possible; returns the resulting value."""
    try:
        before = int(_OOM.read_text(encoding="ascii"))
        if before >= score:
            return before
        _OOM.write_text(str(score), encoding="ascii")
    except OSError:
        return 0
    return score
