"""Isolation of processes that handle hostile bytes: Landlock, seccomp, namespaces, limits.

Each wall is optional, since a container or an older kernel may not allow it. `enter` returns the active
walls.
"""

from __future__ import annotations

from aicirt.sandbox.enter import BUILDER, COMPILER, WORKER, Profile, Walls, die_with, enter

__all__ = ["BUILDER", "COMPILER", "WORKER", "Profile", "Walls", "die_with", "enter"]
