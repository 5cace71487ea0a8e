"""`aici untag`: removes a name of an uploaded controller."""

from __future__ import annotations

import argparse
from typing import Any

from pyaici.cli.command import add_command
from pyaici.cli.place import add_place, open_place

_MORE = """
The controller stays; requests that begin from then on do not find it by this name. At a server the role of
your token decides: an administrator takes away anybody's tags, with or without --force.
"""
_EXAMPLES = """\
  aici untag json_latest
  aici untag theirs --force --socket /run/aici.sock      whoever has given it
"""


def add(commands: Any) -> None:
    """Adds the command and its arguments."""
    summary = "remove a name of an uploaded controller"
    parser = add_command(commands, "untag", run, summary, more=_MORE, examples=_EXAMPLES)
    parser.add_argument("name", metavar="NAME", help="the tag")
    parser.add_argument("--force", action="store_true", help="also one of another owner")
    add_place(parser)


def run(arguments: argparse.Namespace) -> int:
    """Removes the tag; prints nothing."""
    with open_place(arguments) as place:
        place.untag(arguments.name, arguments.force)
    return 0
