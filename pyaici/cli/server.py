"""Commands that use a server: their options, and the server as a place of uploaded modules."""

from __future__ import annotations

import argparse
import builtins
import importlib.util
import os
from collections.abc import Generator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aicirt.contract.errors import AiciError
from aicirt.contract.modules import ControllerInfo
from pyaici.bundled import BundledController, find_controller, language_of
from pyaici.engines.options import HINT, option_of
from pyaici.scripting.script import Script
from pyaici.toolchain.sdk import install_command

if TYPE_CHECKING:
    from pyaici.engines.engine import Request
    from pyaici.rest import RestClient
    from pyaici.rest_types import Controller, RunEvent

    Stream = Generator[RunEvent, None, None]


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


#: options for a local model, and their defaults
LOCAL: dict[str, Any] = {
    "model": None,
    "engine": None,
    "device": None,
    "threads": None,
    "llama_library": None,
    "trust_remote_code": False,
    "second": [],
    "socket": None,
    "store": None,
    "beams": 1,
    "record": None,
}


def local_options(arguments: argparse.Namespace) -> list[str]:
    """Returns the names of the options for a local model that the user has given."""
    return [name for name, default in LOCAL.items() if getattr(arguments, name, default) != default]


def refuse_local(arguments: argparse.Namespace) -> None:
    """Raises AiciError if there are options for a local model beside a server."""
    if given := ", ".join(map(option_of, local_options(arguments))):
        raise AiciError(f"{given} cannot be used with --server, which runs its own model")


def controller_at(client: RestClient, name: str) -> str:
    """Returns the server's name of the controller, after uploading it if it is a Wasm file.

    A script is sent in the argument of the controller that runs it; other names must be known to the
    server.
    """
    from pyaici.rest import ServerError

    if (language := language_of(name)) is not None:
        return language.controller
    if Path(name).suffix != ".wasm" and "/" not in name:
        return name
    path = find_controller(name)
    try:
        return str(client.upload(path.read_bytes())["id"])
    except OSError as error:
        raise AiciError(f"cannot read {path}: {error.strerror}") from error
    except ServerError as error:
        if error.status not in (401, 403):
            raise
        raise AiciError(f"{path} must be uploaded first: {error}") from None


def _run_fields(request: Request) -> dict[str, Any]:
    """Returns the fields of `POST /v1/run` for a request, without its prompt."""
    body: dict[str, Any] = {"max_tokens": request.max_tokens, "controller": request.controller or "none"}
    for field in fields(request.sampling):
        if (value := getattr(request.sampling, field.name)) != field.default:
            body[field.name] = value
    if request.n > 1:
        body["n"] = request.n
    for name, given in (("calls", request.calls), ("name", request.name), ("controller_arg", request.arg)):
        if given:
            body[name] = given
    return body


def start_run(client: RestClient, request: Request, chat: bool | None, *, details: bool = False) -> Stream:
    """Starts a run and returns its stream. `chat` None: a text is a chat if the model has a chat template."""
    from pyaici.rest import ServerError

    body = _run_fields(request)
    if details:
        body["details"] = True
    prompt = request.prompt
    try:
        if not isinstance(prompt, str):
            return _accepted(client, {**body, "messages": prompt})
        if chat is not False:
            try:
                return _accepted(client, {**body, "messages": [{"role": "user", "content": prompt}]})
            except ServerError as error:
                if chat or error.reason != "no_chat_template":
                    raise
        return _accepted(client, {**body, "prompt": prompt})
    except ServerError as error:
        if error.reason == "argument" and "controller_arg" not in body:
            raise AiciError(f"{error.message}; {HINT}", **error.detail) from None
        raise


def _accepted(client: RestClient, body: dict[str, Any]) -> Stream:
    """Starts a run and consumes its first event, in whose place an error of the request is raised."""
    stream = client.run(**body)
    next(stream)
    return stream


class ServerPlace:
    """A `Place` at a server. The token determines the owner; an administrator acts for all owners."""

    def __init__(self, client: RestClient) -> None:
        self._client = client

    def upload(self, wasm: bytes) -> ControllerInfo:
        return _info(self._client.upload(wasm))

    def upload_script(self, script: Script) -> ControllerInfo:
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

    def list(self) -> list[ControllerInfo]:
        """Returns the modules that the user uploaded or can find by a tag; for administrators, all."""
        return [_info(found) for found in self._client.list()["data"]]

    def bundled(self) -> builtins.list[BundledController]:
        return [
            BundledController(found["name"], found["description"], found["example_arg"])
            for found in self._client.list()["bundled"]
        ]


def _info(described: Controller) -> ControllerInfo:
    callbacks = {f"has_{name}": True for name in described["callbacks"]}
    return ControllerInfo.from_wire({**callbacks, **described})
