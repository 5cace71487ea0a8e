"""`aici tags`: lists the names of uploaded controllers."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from aicirt.system.terminal import show
from pyaici.cli.command import add_command
from pyaici.cli.place import add_place, open_place, require_store

_MORE = """
A line for each tag: its name, the beginning of its module's id, who has uploaded the module, and how long
ago that was first done.
"""
_EXAMPLES = """\
  aici tags                                      in the store of this user, or at $AICI_SOCKET or $AICI_SERVER
  aici tags --server http://127.0.0.1:8000
  aici tags --json                               whole ids, and times in seconds since 1970
"""
_UNITS = (("days", 86400), ("h", 3600), ("min", 60), ("s", 1))


def add(commands: Any) -> None:
    """Adds the command and its arguments."""
    summary = "list the names of uploaded controllers"
    parser = add_command(commands, "tags", run, summary, more=_MORE, examples=_EXAMPLES)
    add_place(parser)
    parser.add_argument("--json", action="store_true", help="print a list of objects")


def run(arguments: argparse.Namespace) -> int:
    """Prints one line per tag, sorted by name."""
    require_store(arguments)
    with open_place(arguments) as place:
        modules = place.list()
    tags = sorted((tag, module) for module in modules for tag in module.tags)
    if arguments.json:
        rows = [
            {"tag": tag, "module": module.id, "owners": module.owners, "created": module.created or None}
            for tag, module in tags
        ]
        show(json.dumps(rows, indent=2))
        return 0
    width = max((len(tag) for tag, _ in tags), default=0)
    owners = max((len(_owners(module.owners)) for _, module in tags), default=0)
    for tag, module in tags:
        since = age(time.time() - module.created) if module.created else "unknown"
        show(f"{tag:<{width}}  {module.id[:16]}  {_owners(module.owners):<{owners}}  {since}")
    return 0


def _owners(names: list[str]) -> str:
    return ", ".join(names) or "-"


def age(seconds: float) -> str:
    """Formats a duration in the largest unit of which it has at least two."""
    for name, unit in _UNITS:
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return "just now"
