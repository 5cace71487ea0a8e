"""What each kind of process may still do after it has entered its sandbox."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from aicirt.sandbox import calls
from aicirt.sandbox.landlock import Access
from aicirt.sandbox.seccomp import Filter

_READ = Access.READ_FILE | Access.READ_DIR
#: where a Python package that is imported later finds system libraries
_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache")


@dataclass(frozen=True, slots=True)
class Profile:
    """Rights of one kind of process."""

    name: str
    #: makes the filter of its system calls, in which its process id occurs
    calls: Callable[[], Filter]
    #: paths that it may open, and how
    opens: tuple[tuple[str, Access], ...] = ()
    #: whether it may read Python's own files and system libraries: it imports modules when it needs them
    imports: bool = False
    #: resource limits, by RLIMIT_*
    limits: Mapping[int, int] = field(default_factory=dict)
    #: how willingly the kernel ends this process when memory runs out, before the engine and the daemon
    #: (which have 0, as inherited): https://docs.kernel.org/filesystems/proc.html, up to 1000
    oom_score_adj: int = 0

    def readable(self) -> list[tuple[Path, Access]]:
        """Returns the rules for Landlock."""
        libraries = {sys.prefix, sys.base_prefix, *sys.path, *_LIBRARIES} if self.imports else set()
        rules = [*self.opens, *((path, _READ) for path in sorted(libraries) if path)]
        return [(Path(path), access) for path, access in rules]


#: runs guests of many clients. Its working directory holds compiled modules; /dev/shm has semaphores
WORKER = Profile(
    "worker",
    calls.worker,
    opens=((".", _READ), ("/dev/shm", Access.READ_FILE | Access.WRITE_FILE)),
    imports=True,
    limits={resource.RLIMIT_CORE: 0},
    oom_score_adj=900,
)
#: runs `aici_init`: if it ends, requests wait, and none of them fails
BUILDER = replace(WORKER, name="builder", oom_score_adj=950)
#: compiles one module: its input and output are open before, and it needs nothing else
COMPILER = Profile(
    "compiler",
    calls.compiler,
    limits={
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NPROC: 0,
        resource.RLIMIT_NOFILE: 0,
    },
    oom_score_adj=1000,
)
