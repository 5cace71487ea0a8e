"""`aici remove`: removes an uploaded controller."""

from __future__ import annotations

import argparse
from typing import Any

from aicirt.system.terminal import show
from pyaici.cli.command import add_command
from pyaici.cli.place import add_place, find_module, open_place

_MORE = """
It goes for good if nobody else has uploaded it and nobody has a tag on it; remove your own tags before. What
runs goes on to its end. Without a daemon it is removed from the store; a daemon that uses that store at the
same time has it in memory until it is told so itself, or ends. At a server the role of your token decides:
an administrator removes what others have uploaded, and its tags, with or without --force.
"""
_EXAMPLES = """\
  aici remove 41d0f2c9                                   the beginning of an id, as aici list --all shows it
  aici remove 41d0f2c9 --force --socket /run/aici.sock   whoever has uploaded it, and all its tags
"""


def add(commands: Any) -> None:
    """Adds the command and its arguments."""
    parser = add_command(
        commands, "remove", run, "remove an uploaded controller", more=_MORE, examples=_EXAMPLES
    )
    parser.add_argument("module", metavar="MODULE", help="id of a module, 8 of its digits or more, or a tag")
    parser.add_argument(
        "--force", action="store_true", help="also what others have uploaded, and whatever tags it has"
    )
    add_place(parser)


def run(arguments: argparse.Namespace) -> int:
    """Removes the module, and prints its id and whether it was deleted."""
    with open_place(arguments) as place:
        module = find_module(place, arguments.module)
        gone = place.remove(module, arguments.force)
    show(f"{module}  {'removed' if gone else 'stays: others have uploaded or tagged it'}")
    return 0
