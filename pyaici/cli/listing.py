"""`aici list`: which controllers there are."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aicirt.errors import AiciError
from pyaici.bundled import DESCRIPTIONS, bundled_controllers
from pyaici.cli.command import add_command
from pyaici.grammars import bundled_grammars

if TYPE_CHECKING:
    from aicirt.modules import ModuleInfo

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
    socket = os.environ.get("AICI_SOCKET") or None
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--socket", type=Path, default=socket, help="of a running aicirt (default: $AICI_SOCKET)"
    )
    where.add_argument(
        "--store",
        type=Path,
        help="folder of uploaded modules (default: $AICI_STORE, or the user's cache)",
    )
    parser.add_argument("--all", action="store_true", help="also what was uploaded and has no tag")


def run(arguments: argparse.Namespace) -> int:
    """Prints one line per controller."""
    modules = _uploaded(None if arguments.store else arguments.socket, arguments.store)
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


def _uploaded(socket: Path | None, store: Path | None) -> list[ModuleInfo]:
    """What a daemon has, or else what lies in the store that daemons use on this machine."""
    if socket is not None:
        from aicirt.modules import ModuleInfo
        from pyaici.control import Control

        control = Control(Path(socket))
        try:
            return [ModuleInfo.from_wire(wire) for wire in control.call("list")]
        finally:
            control.close()
    from aicirt.modules import ModuleStore

    if store is not None and not store.is_dir():
        raise AiciError(f"there is no folder {store}")
    return list(ModuleStore(store).list())
