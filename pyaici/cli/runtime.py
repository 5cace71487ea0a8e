"""`aici runtime`: the daemon in the foreground."""

from __future__ import annotations

import argparse
from typing import Any

from pyaici.cli.command import add_command

_MORE = """
Engines on this machine that join it (AICI_SOCKET in their environment) share its workers and modules. An
engine without that starts its own, so this command is for a daemon that shall outlive an engine. All
arguments are those of aicirt: see `aici runtime -- --help`.
"""
_EXAMPLES = """\
  aici runtime -- --socket /run/user/1000/aici.sock --workers 2
  AICI_SOCKET=/run/user/1000/aici.sock aici run yesno --prompt "Is the sky blue?"
  aici runtime -- --limit mid_ms=50 --limit max_forks=4
"""


def add(commands: Any) -> None:
    """Adds the command's arguments."""
    parser = add_command(
        commands, "runtime", run, "start aicirt in the foreground", more=_MORE, examples=_EXAMPLES
    )
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENTS", help="of aicirt")


def run(arguments: argparse.Namespace) -> int:
    """Runs until it is told to stop."""
    from aicirt.__main__ import main  # wasmtime takes time to import

    given = arguments.arguments
    return main(given[1:] if given[:1] == ["--"] else given)
