"""The environment of child processes, without the engine's secrets, and the title that ps and top show."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path

_ROOT = str(Path(__file__).resolve().parents[2])
#: variables passed to a child if they are set: those that Python and the C library read, and locations of our
#: files. Others may hold the engine's secrets, such as tokens, which hostile code in a child must not find
_PASSED = frozenset(
    {
        *("PATH", "HOME", "TMPDIR", "TZ", "TZDIR", "LANG", "LANGUAGE", "VIRTUAL_ENV"),
        *("LD_LIBRARY_PATH", "LD_PRELOAD", "GLIBC_TUNABLES", "MALLOC_ARENA_MAX"),
        *("XDG_CACHE_HOME", "XDG_RUNTIME_DIR"),
        *("AICI_STORE", "AICI_SOCKET", "AICI_LIMITS", "AICI_SINGLE_USER"),
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


def set_title(name: str, command: Sequence[str]) -> None:
    """Shows a name of at most 15 bytes in ps and top, and a command as far as the original one has room."""
    Path("/proc/self/comm").write_text(name, encoding="utf-8")
    # arg_start and arg_end of proc_pid_stat(5); the fields follow the last ')'
    fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    line = "\0".join(command).encode()[: end - start - 1]  # the last byte stays 0, as the kernel expects
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, line, len(line))
