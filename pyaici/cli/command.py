"""Shared helpers of the commands for describing their arguments."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any


def add_command(
    commands: Any,
    name: str,
    run: Callable[[argparse.Namespace], int],
    summary: str,
    *,
    more: str = "",
    examples: str,
) -> argparse.ArgumentParser:
    """Adds a command whose help shows `summary`, `more` and `examples`."""
    added: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.\n{more}".rstrip(),
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    added.set_defaults(run=run, parser=added)
    return added
