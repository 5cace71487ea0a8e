"""Checks that need a guest, in a child process to keep wasmtime's signal handlers out of the caller."""

from __future__ import annotations

import sys
from functools import lru_cache

from aicirt.doctor.finding import Finding, State
from aicirt.system.environment import child_environment
from aicirt.system.silence import finish

_COMMAND = [sys.executable, "-P", "-m", "aicirt.wasm.selfcheck"]


@lru_cache(1)
def _ask() -> tuple[dict[str, str], str]:
    """Runs the child process; returns its answers and its last line of errors."""
    child = finish(_COMMAND, env=child_environment())
    answers = dict(line.partition(" ")[::2] for line in child.stdout.splitlines())
    errors = child.stderr.strip().splitlines()[-1:] or [f"the check ended with status {child.returncode}"]
    return answers, errors[0]


def run_guests() -> Finding:
    """Checks that guests can be compiled, run, trap, and are interrupted by time limits."""
    answers, error = _ask()
    if "guests" not in answers or "changes" not in answers:
        cure = "reinstall wasmtime; if no thread can be created, raise ulimit -u"
        return Finding("guests", State.MISSING, error, "no controller can run", cure)
    return Finding("guests", State.OK, "run, trap and are interrupted by time limits")


def changed_pages() -> Finding:
    """Checks for PAGEMAP_SCAN, with which forks find the pages to copy."""
    answers, error = _ask()
    if answers.get("changes") == "PageScanner":
        return Finding("PAGEMAP_SCAN", State.OK, "available")
    if "changes" not in answers:
        return Finding("PAGEMAP_SCAN", State.MISSING, error, "forks do not work", "mount /proc")
    cost = "a fork checks every page of a guest's memory: about 50 us more for 16 MB"
    return Finding("PAGEMAP_SCAN", State.NOTE, "not available", cost, "use Linux 6.7 or newer")
