"""A server that a command speaks to: which one, and as whom."""

from __future__ import annotations

import argparse
import importlib.util
import os
from typing import TYPE_CHECKING

from aicirt.contract.errors import AiciError

if TYPE_CHECKING:
    from pyaici.rest import RestClient


def add_server(where: argparse._ActionsContainer, parser: argparse.ArgumentParser, more: str = "") -> None:
    """Adds --server to `where`, a group of options that exclude each other or the parser, and --token."""
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
    """The address of the server: of --server, or of $AICI_SERVER unless options say `elsewhere`.

    Raises AiciError for a --token without a server.
    """
    url: str | None = arguments.server
    if url is None and not elsewhere:
        url = os.environ.get("AICI_SERVER") or None
    if url is None and arguments.token is not None:
        raise AiciError("--token is for a server: say which with --server URL")
    return url


def open_server(url: str, arguments: argparse.Namespace, *packages: str) -> RestClient:
    """A client with the user's token; `packages` are needed besides. Raises AiciError for missing ones."""
    missing = [name for name in ("httpx2", *packages) if importlib.util.find_spec(name) is None]
    if missing:
        raise AiciError(
            f'--server needs the client: pip install "aici[client]" (there is no {", ".join(missing)})'
        )
    from pyaici.rest import RestClient

    return RestClient(url, arguments.token or os.environ.get("AICI_TOKEN") or None)
