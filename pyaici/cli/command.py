"""Shared helpers of the commands for describing their arguments."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Callable
from typing import Any, NoReturn


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


def refuse_rest(parser: argparse.ArgumentParser, rest: list[str]) -> NoReturn:
    """Ends the program as argparse does for unknown arguments, and suggests the ones probably meant."""
    known = [option for action in parser._actions for option in action.option_strings]
    words = [word.partition("=")[0] for word in rest if word.startswith("--")]
    meant = [found[0] for word in words if (found := difflib.get_close_matches(word, known, n=1))]
    if not words and "--prompt" in known:
        meant = ["--prompt"]
    hint = f"; did you mean {' and '.join(meant)}?" if meant else ""
    parser.error(f"unrecognized arguments: {' '.join(rest)}{hint}")
