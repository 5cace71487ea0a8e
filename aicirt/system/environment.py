"""The environment of child processes, without the engine's secrets."""

from __future__ import annotations

import os
from pathlib import Path

_ROOT = str(Path(__file__).resolve().parents[2])
#: variables that a child gets if they are set: what Python and the C library read, and where our files are.
#: Others may hold secrets of the engine, such as tokens, which code that breaks out of a child must not find
_PASSED = frozenset(
    {
        *("PATH", "HOME", "TMPDIR", "TZ", "TZDIR", "LANG", "LANGUAGE", "VIRTUAL_ENV"),
        *("LD_LIBRARY_PATH", "LD_PRELOAD", "GLIBC_TUNABLES", "MALLOC_ARENA_MAX"),
        *("XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "AICI_STORE", "AICI_SOCKET"),
    }
)
_PASSED_PREFIXES = ("LC_", "PYTHON")


def child_environment() -> dict[str, str]:
    """Returns the environment of a child process, without secrets that the engine may have in its own.

    The child finds this very package, also where it is not installed, and its libraries do not start
    threads or reserve memory for them.
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
