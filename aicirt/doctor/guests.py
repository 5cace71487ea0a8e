"""Checks that need a guest, in a child process to keep wasmtime's signal handlers out of the caller."""

from __future__ import annotations

import subprocess
import sys
from functools import lru_cache

from aicirt.doctor.finding import Finding, State
from aicirt.system.environment import child_environment

_SECONDS = 60
_COMMAND = [sys.executable, "-P", "-m", "aicirt.wasm.selfcheck"]


@lru_cache(1)
def _ask() -> tuple[dict[str, str], str]:
    """Runs the child process; returns its answers and its last line of errors."""
    child = subprocess.run(
        _COMMAND, capture_output=True, text=True, timeout=_SECONDS, env=child_environment(), check=False
    )
    said = dict(line.partition(" ")[::2] for line in child.stdout.splitlines())
    words = child.stderr.strip().splitlines()[-1:] or [f"it ended with status {child.returncode}"]
    return said, words[0]


def run_guests() -> Finding:
    """Checks that guests can be compiled, run, trap, and are interrupted by time limits."""
    said, words = _ask()
    if "guests" not in said or "changes" not in said:
        cure = "reinstall wasmtime; ulimit -u if no thread can be made"
        return Finding("guests", State.MISSING, words, "no controller can run", cure)
    return Finding("guests", State.OK, "run, trap, and are interrupted")


def changed_pages() -> Finding:
    """Checks for PAGEMAP_SCAN, with which forks find the pages to copy."""
    said, words = _ask()
    if said.get("changes") == "PageScanner":
        return Finding("PAGEMAP_SCAN", State.OK, "there")
    if "changes" not in said:
        return Finding("PAGEMAP_SCAN", State.MISSING, words, "forks do not work", "mount /proc")
    cost = "forks look at every page of a guest's memory: some 50 us more for 16 MB"
    return Finding("PAGEMAP_SCAN", State.NOTE, "not there", cost, "Linux 6.7 or newer")
