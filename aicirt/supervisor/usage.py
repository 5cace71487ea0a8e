"""What a process has used, as /proc tells everybody."""

from __future__ import annotations

import os
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE_KIB = os.sysconf("SC_PAGE_SIZE") // 1024


def usage(pid: int) -> dict[str, float]:
    """`cpu_s`: seconds of processor time; `rss_kib`: memory, shared pages included. Empty if it is gone."""
    folder = Path(f"/proc/{pid}")
    try:
        # the name of the program, in parentheses, may hold anything
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        pages = int((folder / "statm").read_text().split()[1])
    except OSError:
        return {}
    return {"cpu_s": (int(fields[11]) + int(fields[12])) / _TICK, "rss_kib": pages * _PAGE_KIB}


def progress(pid: int) -> tuple[bool, float]:
    """Whether the main thread of a process runs or waits for a processor, and seconds of CPU time that the
    process has used."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False, 0.0
    return fields[0] == "R", (int(fields[11]) + int(fields[12])) / _TICK
