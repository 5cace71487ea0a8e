"""Isolation of processes that handle hostile bytes: Landlock, seccomp, namespaces, limits.

Each layer is optional, since a container or an older kernel may not allow it. `enter` returns the active
layers.
"""

from __future__ import annotations

from aicirt.sandbox.enter import BUILDER, COMPILER, WORKER, Profile, SandboxLayers, die_with, enter

__all__ = ["BUILDER", "COMPILER", "WORKER", "Profile", "SandboxLayers", "die_with", "enter"]
