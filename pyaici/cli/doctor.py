"""`aici doctor`: what of this machine can be used, and what is missing."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyaici.cli.command import add_command

if TYPE_CHECKING:
    from aicirt.doctor import Finding

_MORE = """
Looks at the kernel, limits, shared memory, processors and packages, and says of what is missing what that
costs and how to get it. The exit status is 1 if something is missing without which nothing works.
"""
_EXAMPLES = """\
  aici doctor               a line for each thing, two more where there is something to say
  aici doctor --json        for programs
"""
#: package -> (what needs it, how to get it)
_PACKAGES = {
    "ziglang": ("aici build", "pip install 'aici[sdk]'"),
    "torch": ("the Transformers engine", "pip install 'aici[hf]'"),
    "transformers": ("the Transformers engine", "pip install 'aici[hf]'"),
}
_COLOURS = {"ok": "32", "note": "33", "missing": "31"}


def add(commands: Any) -> None:
    """Adds the command's arguments."""
    summary = "look at what this machine has and lacks"
    parser = add_command(commands, "doctor", run, summary, more=_MORE, examples=_EXAMPLES)
    parser.add_argument("--json", action="store_true", help="print a list of objects")
    parser.add_argument(
        "--socket",
        type=Path,
        default=os.environ.get("AICI_SOCKET") or None,
        help="also ask the aicirt there (default: $AICI_SOCKET)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Prints the findings; returns the exit status."""
    from aicirt.doctor import State, examine

    findings = [*examine(), *(_package(name) for name in _PACKAGES)]
    if arguments.socket:
        findings.append(_daemon(Path(arguments.socket)))
    if arguments.json:
        rows = [{**asdict(finding), "state": finding.state.value} for finding in findings]
        print(json.dumps(rows, indent=2))
    else:
        for finding in findings:
            _show(finding)
    return int(any(finding.state == State.MISSING for finding in findings))


def _show(finding: Finding) -> None:
    state = finding.state.value
    if sys.stdout.isatty():
        state = f"\x1b[{_COLOURS[state]}m{state:<8}\x1b[0m"
    print(f"{state:<8} {finding.name:<16} {finding.found}")
    if finding.cost:
        cure = f"; to mend it: {finding.cure}" if finding.cure else ""
        print(f"{'':<25} so {finding.cost}{cure}")


def _package(name: str) -> Finding:
    from aicirt.doctor import Finding, State

    needed_by, cure = _PACKAGES[name]
    try:
        return Finding(name, State.OK, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, State.NOTE, "not installed", f"{needed_by} does not work", cure)


def _daemon(path: Path) -> Finding:
    from aicirt.doctor import Finding, State
    from aicirt.errors import AiciError
    from pyaici.control import Control

    try:
        control = Control(path)
        try:
            health = control.call("health")
        finally:
            control.close()
    except AiciError as error:
        cost = "what looks for it there finds nothing"
        return Finding("aicirt", State.NOTE, str(error), cost, f"aici runtime --socket {path}")
    others = len(health["clients"]) - 1
    found = f"pid {health['pid']}, {len(health['workers'])} workers, {others} other clients"
    return Finding("aicirt", State.OK, found)
