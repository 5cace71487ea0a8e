"""`aici runtime`: runs the daemon aicirt in the foreground."""

from __future__ import annotations

import argparse
from typing import Any


def add(commands: Any) -> None:
    """Adds the command; its arguments are the daemon's own (`takes_rest`)."""
    parser = commands.add_parser("runtime", help="start aicirt in the foreground", add_help=False)
    parser.set_defaults(run=run, takes_rest=True)


def run(arguments: argparse.Namespace) -> int:
    """Runs the daemon until a signal stops it."""
    from aicirt.__main__ import main  # wasmtime takes time to import

    return main(arguments.rest, prog="aici runtime")
