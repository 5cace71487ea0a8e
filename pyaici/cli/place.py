"""The place of uploaded modules: a server, a daemon, or the store from which a user's daemons start."""

from __future__ import annotations

import argparse
import builtins
import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

from aicirt.contract.errors import AiciError, UnknownControllerError
from aicirt.contract.modules import SHORTEST_ID, ControllerInfo, resolve_name
from aicirt.contract.owners import DEFAULT_OWNER
from pyaici.bundled import BundledController, build_missing, bundled_controllers, describe_bundled
from pyaici.cli.server import ServerPlace, add_server, open_server, server_of
from pyaici.client.control import list_modules
from pyaici.scripting.script import Script, ScriptFileError, interpreter_file


class Place(Protocol):
    """A place of uploaded modules, with the operations of the commands. Errors are AiciError."""

    def upload(self, wasm: bytes) -> ControllerInfo: ...

    def upload_script(self, script: Script) -> ControllerInfo:
        """Uploads a script, and its interpreter if that is missing there.

        Also raises InterpreterMissingError, and for syntax errors ScriptFileError or ServerError.
        """
        ...

    def tag(self, module: str, tag: str) -> None: ...

    def untag(self, tag: str, force: bool) -> None: ...

    def remove(self, module: str, force: bool) -> bool:
        """Removes the owner's upload; returns whether the module was deleted.

        The module stays if other owners have uploaded or tagged it.
        """
        ...

    def list(self) -> list[ControllerInfo]: ...

    def bundled(self) -> builtins.list[BundledController]:
        """Returns the controllers that need no upload there."""
        ...


def add_place(parser: argparse.ArgumentParser) -> None:
    """Adds the options that `open_place` reads."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--socket", type=Path, help="socket of a running daemon (default: $AICI_SOCKET)")
    where.add_argument(
        "--store",
        type=Path,
        help="folder for uploaded controllers (default: $AICI_STORE, or a folder in the user's cache)",
    )
    add_server(where, parser, "; options override variables, and $AICI_SERVER overrides $AICI_SOCKET")


@contextlib.contextmanager
def open_place(arguments: argparse.Namespace) -> Iterator[Place]:
    """Opens the place of --server, --socket or --store, at most one of which is given.

    Without these options, uses $AICI_SERVER, else $AICI_SOCKET, else the user's store.
    """
    url = server_of(arguments, elsewhere=arguments.socket is not None or arguments.store is not None)
    socket = arguments.socket or os.environ.get("AICI_SOCKET")
    if url is not None:
        with open_server(url, arguments) as client:
            yield ServerPlace(client)
    elif socket and arguments.store is None:
        daemon = _Daemon(Path(socket))
        try:
            yield daemon
        finally:
            daemon.control.close()
    else:
        yield _Store(arguments.store)


def require_store(arguments: argparse.Namespace) -> None:
    """Raises AiciError if --store names no folder; for commands that only read."""
    if arguments.store is not None and not arguments.store.is_dir():
        raise AiciError(f"there is no folder {arguments.store}")


def resolve_module(place: Place, name: str) -> str:
    """Returns the id of the module that `name` identifies.

    Raises UnknownControllerError if there is no such module, or more than one.
    """
    modules = place.list()
    ids = {module.id for module in modules}
    tags = {tag: module.id for module in modules for tag in module.tags}
    if (bundled := bundled_controllers().get(name)) is not None:  # takes precedence, as in `Runtime.find`
        tags[name] = hashlib.sha256(bundled.read_bytes()).hexdigest()
    try:
        found = resolve_name(name, lambda: ids, tags.get, SHORTEST_ID)
    except UnknownControllerError as error:
        if "modules" in error.detail:  # several modules match
            raise
        found = ""
    if found not in ids:
        raise UnknownControllerError(f"no uploaded controller is called {name!r}; aici list --all lists all")
    return found


def _interpreter(script: Script, store: Path | None = None) -> bytes:
    """Returns the module that runs a script, after checking the script's syntax.

    `store`: where the script will be stored; None for a daemon. Raises InterpreterMissingError, and
    ScriptFileError for a syntax error.
    """
    build_missing(script.language.controller)
    wasm = interpreter_file(script.language)
    from pyaici.scripting.checker import Checker  # a server does the same check

    with Checker(store) as checker:
        if (problem := checker.check_syntax(script)) is not None:
            raise ScriptFileError(str(problem))
    return wasm.read_bytes()


class _Daemon:
    def __init__(self, socket: Path) -> None:
        from pyaici.client.control import Control

        self.control = Control(socket)

    def upload(self, wasm: bytes) -> ControllerInfo:
        return ControllerInfo.from_wire(self.control.call("upload", wasm=wasm))

    def upload_script(self, script: Script) -> ControllerInfo:
        interpreter = self.upload(_interpreter(script))
        described = self.control.call("upload_script", script=asdict(script.stored(interpreter.id)))
        return ControllerInfo.from_wire(described)

    def tag(self, module: str, tag: str) -> None:
        self.control.call("tag", module=module, tag=tag)

    def untag(self, tag: str, force: bool) -> None:
        self.control.call("untag", tag=tag, force=force)

    def remove(self, module: str, force: bool) -> bool:
        gone: bool = self.control.call("remove", module=module, force=force)
        return gone

    def list(self) -> list[ControllerInfo]:
        return list(list_modules(self.control))

    def bundled(self) -> builtins.list[BundledController]:
        return describe_bundled()


class _Store:
    """The store on disk, used as by a daemon for a client that names no owner."""

    def __init__(self, folder: Path | None) -> None:
        from aicirt.modules.store import ModuleStore  # asyncio takes 0.1 s to import

        self._folder, self._store = folder, ModuleStore(folder)

    def upload(self, wasm: bytes) -> ControllerInfo:
        return self._store.add(wasm, DEFAULT_OWNER)

    def upload_script(self, script: Script) -> ControllerInfo:
        interpreter = self.upload(_interpreter(script, self._folder))
        return self._store.add_script(script.stored(interpreter.id), DEFAULT_OWNER)

    def tag(self, module: str, tag: str) -> None:
        self._store.tag(tag, module, DEFAULT_OWNER)

    def untag(self, tag: str, force: bool) -> None:
        self._store.untag(tag, DEFAULT_OWNER, force=force)

    def remove(self, module: str, force: bool) -> bool:
        return bool(self._store.remove(module, DEFAULT_OWNER, force=force))

    def list(self) -> list[ControllerInfo]:
        return list(self._store.list())

    def bundled(self) -> builtins.list[BundledController]:
        return describe_bundled()
