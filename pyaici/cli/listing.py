"""`aici list`: which controllers there are."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyaici.bundled import bundled_controllers
from pyaici.cli.command import add_command

if TYPE_CHECKING:
    from aicirt.modules import ModuleInfo

_EXAMPLES = """\
  aici list                               bundled controllers, and what has been uploaded on this machine
  aici list --socket /run/aici.sock       ... at this daemon
"""


def add(commands: Any) -> None:
    """Adds the command's arguments."""
    summary = "list bundled controllers, uploaded modules and tags"
    parser = add_command(commands, "list", run, summary, examples=_EXAMPLES)
    socket = os.environ.get("AICI_SOCKET") or None
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--socket", type=Path, default=socket, help="of a running aicirt (default: $AICI_SOCKET)"
    )
    where.add_argument(
        "--store", type=Path, help="folder of a daemon that has its own (default: the user's cache)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Prints one line per controller."""
    print("bundled:")
    for name, path in bundled_controllers().items():
        print(f"  {name:<20} {path.stat().st_size / 1000:>8.1f} kB")
    modules = _uploaded(None if arguments.store else arguments.socket, arguments.store)
    print("uploaded:" if modules else "uploaded: nothing")
    for module in sorted(modules, key=lambda m: (not m.tags, m.tags, m.id)):
        print(f"  {module.id[:16]:<20} {module.size / 1000:>8.1f} kB  {', '.join(module.tags)}".rstrip())
    return 0


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

    return list(ModuleStore(store).list())
