"""Options of commands that use a server: its address and the user's token."""

from __future__ import annotations

import argparse
import importlib.util
import os
from typing import TYPE_CHECKING

from aicirt.contract.errors import AiciError

if TYPE_CHECKING:
    from pyaici.rest import RestClient


def add_server(where: argparse._ActionsContainer, parser: argparse.ArgumentParser, more: str = "") -> None:
    """Adds --server to `where` (the parser, or a group of exclusive options), and --token to `parser`."""
    where.add_argument(
        "--server",
        metavar="URL",
        help=f"of a running aici serve, e.g. http://127.0.0.1:8000 (default: $AICI_SERVER{more})",
    )
    parser.add_argument(
        "--token",
        metavar="TOKEN",
        help="yours at the server; others on this machine can see options, so that $AICI_TOKEN is better, "
        "which is the default",
    )


def server_of(arguments: argparse.Namespace, *, elsewhere: bool) -> str | None:
    """Returns the server's address from --server, else from $AICI_SERVER; None for no server.

    Ignores $AICI_SERVER if `elsewhere`, which means that other options name another place. Raises AiciError
    for a --token without a server.
    """
    url: str | None = arguments.server
    if url is None and not elsewhere:
        url = os.environ.get("AICI_SERVER") or None
    if url is None and arguments.token is not None:
        raise AiciError("--token is for a server: say which with --server URL")
    return url


def open_server(url: str, arguments: argparse.Namespace, *packages: str) -> RestClient:
    """Returns a client with the user's token. Raises AiciError if httpx2 or one of `packages` is missing."""
    missing = [name for name in ("httpx2", *packages) if importlib.util.find_spec(name) is None]
    if missing:
        raise AiciError(
            f'--server needs the client: pip install "aici[client]" (there is no {", ".join(missing)})'
        )
    from pyaici.rest import RestClient

    return RestClient(url, arguments.token or os.environ.get("AICI_TOKEN") or None)
