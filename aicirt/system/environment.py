"""The environment of child processes, without the engine's secrets."""

from __future__ import annotations

import os
from pathlib import Path

_ROOT = str(Path(__file__).resolve().parents[2])
#: variables passed to a child if they are set: those that Python and the C library read, and locations of our
#: files. Others may hold the engine's secrets, such as tokens, which hostile code in a child must not find
_PASSED = frozenset(
    {
        *("PATH", "HOME", "TMPDIR", "TZ", "TZDIR", "LANG", "LANGUAGE", "VIRTUAL_ENV"),
        *("LD_LIBRARY_PATH", "LD_PRELOAD", "GLIBC_TUNABLES", "MALLOC_ARENA_MAX"),
        *("XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "AICI_STORE", "AICI_SOCKET", "AICI_LIMITS"),
    }
)
_PASSED_PREFIXES = ("LC_", "PYTHON")


def child_environment() -> dict[str, str]:
    """Returns the environment for a child process, without secrets from the engine's environment.

    The child imports this same package, even if it is not installed, and its libraries start no threads and
    reserve no memory for threads.
    """
    passed = {
        name: value
        for name, value in os.environ.items()
        if name in _PASSED or name.startswith(_PASSED_PREFIXES)
    }
    inherited = passed.get("PYTHONPATH")
    path = os.pathsep.join([_ROOT, inherited]) if inherited else _ROOT
    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    return {**passed, **one_thread, "PYTHONPATH": path}
