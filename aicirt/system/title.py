"""The title of this process: the command line and the name that ps and top show."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path


def set_title(name: str, command: Sequence[str]) -> None:
    """Shows a name of at most 15 bytes, and a command as far as the memory of the original one has room."""
    Path("/proc/self/comm").write_text(name, encoding="utf-8")
    # arg_start and arg_end of proc_pid_stat(5); the fields follow the last ')'
    fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    line = "\0".join(command).encode()[: end - start - 1]  # the last byte stays 0, as the kernel expects
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, line, len(line))
