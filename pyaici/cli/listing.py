"""`aici list`: which controllers there are."""

from __future__ import annotations

import argparse
import shlex
from typing import Any

from aicirt.errors import AiciError
from pyaici.bundled import DESCRIPTIONS, bundled_controllers
from pyaici.cli.command import add_command
from pyaici.cli.place import add_place, open_place
from pyaici.grammars import bundled_grammars

_MORE = """
Bundled controllers are run by their names: aici run NAME. Uploaded ones are those that have been run, or that
an engine has uploaded; a tag is a name by which engines start one.
"""
_EXAMPLES = """\
  aici list                               bundled controllers, and what has a tag on this machine
  aici list --all                         ... and whatever else has been uploaded
  aici list --socket /run/aici.sock       ... at this daemon
"""


def add(commands: Any) -> None:
    """Adds the command's arguments."""
    summary = "list bundled controllers, uploaded modules and tags"
    parser = add_command(commands, "list", run, summary, more=_MORE, examples=_EXAMPLES)
    add_place(parser)
    parser.add_argument("--all", action="store_true", help="also what was uploaded and has no tag")


def run(arguments: argparse.Namespace) -> int:
    """Prints one line per controller."""
    if arguments.store is not None and not arguments.store.is_dir():
        raise AiciError(f"there is no folder {arguments.store}")
    with open_place(arguments) as place:
        modules = place.list()
    print("bundled:")
    for name, path in bundled_controllers().items():
        summary, example = DESCRIPTIONS.get(name, ("", None))
        print(_line(name, path.stat().st_size, summary))
        if example:
            print(f"{'':<33}  aici run {name} --arg {shlex.quote(example)} --prompt ...")
    print(f"grammars, for --arg @NAME: {', '.join(bundled_grammars())}")
    shown = [module for module in modules if arguments.all or module.tags]
    print("uploaded:" if modules else "uploaded: nothing")
    for module in sorted(shown, key=lambda m: (not m.tags, m.tags, m.id)):
        print(_line(module.id[:16], module.size, ", ".join(module.tags)))
    if left := len(modules) - len(shown):
        print(f"  {left} without a tag; --all lists them")
    return 0


def _line(name: str, size: int, more: str) -> str:
    return f"  {name:<20} {size / 1000:>8.1f} kB  {more}".rstrip()
