"""`aici tag`: gives an uploaded controller a name."""

from __future__ import annotations

import argparse
from typing import Any

from aicirt.system.terminal import show
from pyaici.cli.command import add_command
from pyaici.cli.place import add_place, find_module, open_place

_MORE = """
Requests that begin from then on get this module by the name; those under way keep theirs.
"""
_EXAMPLES = """\
  aici tag 41d0f2c9 json_latest              the beginning of an id, as aici list --all shows it
  aici tag json_latest json_stable           what has this tag gets another one
  aici tag json_latest json_stable --server http://gpu-3:8000
"""


def add(commands: Any) -> None:
    """Adds the command and its arguments."""
    parser = add_command(
        commands, "tag", run, "give an uploaded controller a name", more=_MORE, examples=_EXAMPLES
    )
    parser.add_argument("module", metavar="MODULE", help="id of a module, 8 of its digits or more, or a tag")
    parser.add_argument("name", metavar="NAME", help="the tag; if another module has it, it moves")
    add_place(parser)


def run(arguments: argparse.Namespace) -> int:
    """Adds the tag, and prints the id of the module and its tags."""
    with open_place(arguments) as place:
        module = find_module(place, arguments.module)
        place.tag(module, arguments.name)
        (tags,) = [found.tags for found in place.list() if found.id == module]
    show(f"{module}  {', '.join(sorted(tags))}")
    return 0
