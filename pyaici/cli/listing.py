"""`aici list`: lists the available controllers."""

from __future__ import annotations

import argparse
import shlex
from typing import Any

from aicirt.system.terminal import show
from pyaici.bundled import LANGUAGES, bundled_grammars
from pyaici.cli.command import add_command
from pyaici.cli.place import add_place, open_place, require_store

_MORE = """
Bundled controllers are run by their names: aici run NAME. Scripts are files, which bundled controllers run:
aici run my_script.py. Uploaded ones are those that have been run, or that
an engine has uploaded; a tag is a name by which engines start one.
"""
_EXAMPLES = """\
  aici list                               bundled controllers, and what has a tag on this machine
  aici list --all                         ... and whatever else has been uploaded
  aici list --socket /run/aici.sock       ... at this daemon
  aici list --server http://gpu-3:8000    ... at this server: yours, and what has a tag
"""


def add(commands: Any) -> None:
    """Adds the command and its arguments."""
    summary = "list bundled controllers, uploaded modules and tags"
    parser = add_command(commands, "list", run, summary, more=_MORE, examples=_EXAMPLES)
    add_place(parser)
    parser.add_argument("--all", action="store_true", help="also what was uploaded and has no tag")


def run(arguments: argparse.Namespace) -> int:
    """Prints the bundled controllers, script languages, grammars and uploaded modules."""
    require_store(arguments)
    with open_place(arguments) as place:
        modules, bundled = place.list(), place.bundled()
    show("bundled:")
    for known in bundled:
        show(_line(known.name, known.size, known.summary))
        if known.example:
            show(f"{'':<33}  aici run {known.name} --arg {shlex.quote(known.example)} --prompt ...")
    show("scripts, by the names of their files:")
    names = {known.name for known in bundled}
    for language in LANGUAGES:
        runs = (
            f"run by {language.controller}" if language.controller in names else "not built: see aici doctor"
        )
        example = f"aici run my_script{language.suffixes[0]} --arg JSON_OR_TEXT --prompt ..."
        show(f"  {' '.join('*' + suffix for suffix in language.suffixes):<33}{language.name}, {runs}")
        show(f"{'':<33}  {example}")
    show(f"grammars, for --arg @NAME: {', '.join(bundled_grammars())}")
    shown = [module for module in modules if arguments.all or module.tags]
    show("uploaded:" if modules else "uploaded: nothing")
    for module in sorted(shown, key=lambda m: (not m.tags, m.tags, m.id)):
        script = [f"({module.script}, a script in {module.language})"] if module.script else []
        show(_line(module.id[:16], module.size, "  ".join([", ".join(module.tags), *script]).strip()))
    if left := len(modules) - len(shown):
        show(f"  {left} without a tag; --all lists them")
    return 0


def _line(name: str, size: int | None, more: str) -> str:
    kilobytes = "" if size is None else f"{size / 1000:.1f} kB"
    return f"  {name:<20} {kilobytes:>11}  {more}".rstrip()
