"""The walls around processes that handle hostile bytes: Landlock, seccomp, namespaces, limits.

Each wall is optional: a container or an older kernel may forbid it. `enter` tells which ones stand.
"""

from __future__ import annotations

from aicirt.sandbox.enter import BUILDER, COMPILER, WORKER, Profile, Walls, die_with, enter

__all__ = ["BUILDER", "COMPILER", "WORKER", "Profile", "Walls", "die_with", "enter"]
