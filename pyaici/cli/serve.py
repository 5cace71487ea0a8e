"""`aici serve`: runs the HTTP server."""

from __future__ import annotations

import argparse
import importlib.util
from typing import Any

from aicirt.contract.errors import AiciError

#: packages of the extra `server`
_PACKAGES = ("fastapi", "uvicorn", "sse_starlette", "prometheus_client", "pydantic_settings")


def add(commands: Any) -> None:
    """Adds the command; its arguments are the server's own (`takes_rest`)."""
    parser = commands.add_parser("serve", help="serve a model and its controllers over HTTP", add_help=False)
    parser.set_defaults(run=run, takes_rest=True)


def run(arguments: argparse.Namespace) -> int:
    """Runs the server until a signal stops it."""
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise AiciError(
            f'this needs the server: pip install "aici[server,hf]" (there is no {", ".join(missing)})'
        )
    from pyaici.server.program import main

    return main(arguments.rest)
