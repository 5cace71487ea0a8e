"""Commands that use a server: their options, and the server as a place of uploaded modules."""

from __future__ import annotations

import argparse
import builtins
import importlib.util
import os
from typing import TYPE_CHECKING, Any

from aicirt.contract.errors import AiciError
from aicirt.contract.modules import ModuleInfo
from pyaici.bundled import BundledController
from pyaici.scripting.script import Script
from pyaici.toolchain.sdk import install_command

if TYPE_CHECKING:
    from pyaici.rest import RestClient


def add_server(where: argparse._ActionsContainer, parser: argparse._ActionsContainer, more: str = "") -> None:
    """Adds --server to `where`, which may be a group of exclusive options, and --token to `parser`."""
    where.add_argument(
        "--server",
        metavar="URL",
        help=f"address of an aici serve, e.g. http://127.0.0.1:8000 (default: $AICI_SERVER{more})",
    )
    parser.add_argument(
        "--token",
        metavar="TOKEN",
        help="your token for the server (default: $AICI_TOKEN, which is safer, because other users of this "
        "machine can see options)",
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
        raise AiciError("--token needs a server: add --server URL")
    return url


def open_server(url: str, arguments: argparse.Namespace, *packages: str) -> RestClient:
    """Returns a client with the user's token. Raises AiciError if httpx2 or one of `packages` is missing."""
    missing = [name for name in ("httpx2", *packages) if importlib.util.find_spec(name) is None]
    if missing:
        raise AiciError(
            f"--server needs the client: {install_command('client')} (missing: {', '.join(missing)})"
        )
    from pyaici.rest import RestClient

    return RestClient(url, arguments.token or os.environ.get("AICI_TOKEN") or None)


class ServerPlace:
    """A `Place` at a server. The token determines the owner; an administrator acts for all owners."""

    def __init__(self, client: RestClient) -> None:
        self._client = client

    def upload(self, wasm: bytes) -> ModuleInfo:
        return _info(self._client.upload(wasm))

    def upload_script(self, script: Script) -> ModuleInfo:
        return _info(self._client.upload_script(script.language.word, script.source, script.name))

    def tag(self, module: str, tag: str) -> None:
        self._client.tag(module, tag)

    def untag(self, tag: str, force: bool) -> None:
        """Removes a tag. The role of the token decides; `force` has no effect."""
        self._client.untag(tag)

    def remove(self, module: str, force: bool) -> bool:
        """Removes a module; returns whether it was deleted. The role decides; `force` has no effect."""
        from pyaici.rest import ServerError

        self._client.remove(module)
        try:
            self._client.describe(module)
        except ServerError as error:
            if error.status == 404:
                return True
            raise
        return False

    def list(self) -> list[ModuleInfo]:
        """Returns the modules that the user uploaded or can find by a tag; for administrators, all."""
        return [_info(found) for found in self._client.list()["data"]]

    def bundled(self) -> builtins.list[BundledController]:
        return [
            BundledController(found["name"], found["description"], found["example_arg"])
            for found in self._client.list()["bundled"]
        ]


def _info(described: dict[str, Any]) -> ModuleInfo:
    callbacks = {f"has_{name}": True for name in described["callbacks"]}
    return ModuleInfo.from_wire({**callbacks, **described})
