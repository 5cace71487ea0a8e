"""Where uploaded modules are: a running daemon, or the store that daemons of this user start with."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from aicirt.modules.info import ModuleInfo


class Place(Protocol):
    """What commands do with uploaded modules; errors are AiciError."""

    def upload(self, wasm: bytes) -> ModuleInfo: ...

    def tag(self, module: str, tag: str) -> None: ...

    def list(self) -> list[ModuleInfo]: ...


def add_place(parser: argparse.ArgumentParser) -> None:
    """Adds the options that `open_place` reads."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--socket",
        type=Path,
        default=os.environ.get("AICI_SOCKET") or None,
        help="of a running aicirt (default: $AICI_SOCKET)",
    )
    where.add_argument(
        "--store",
        type=Path,
        help="folder of uploaded modules (default: $AICI_STORE, or the user's cache)",
    )


@contextlib.contextmanager
def open_place(arguments: argparse.Namespace) -> Iterator[Place]:
    """The daemon at --socket or $AICI_SOCKET, unless there is none or a --store is named."""
    if arguments.socket is not None and arguments.store is None:
        daemon = _Daemon(Path(arguments.socket))
        try:
            yield daemon
        finally:
            daemon.control.close()
    else:
        yield _Store(arguments.store)


class _Daemon:
    def __init__(self, socket: Path) -> None:
        from pyaici.control import Control

        self.control = Control(socket)

    def upload(self, wasm: bytes) -> ModuleInfo:
        return ModuleInfo.from_wire(self.control.call("upload", wasm=wasm))

    def tag(self, module: str, tag: str) -> None:
        self.control.call("tag", module=module, tag=tag)

    def list(self) -> list[ModuleInfo]:
        return [ModuleInfo.from_wire(wire) for wire in self.control.call("list")]


class _Store:
    def __init__(self, folder: Path | None) -> None:
        from aicirt.modules import ModuleStore  # wasmtime takes time to import

        self._store = ModuleStore(folder)

    def upload(self, wasm: bytes) -> ModuleInfo:
        return self._store.add(wasm)

    def tag(self, module: str, tag: str) -> None:
        from aicirt.supervisor.session import DEFAULT_OWNER

        # as if a daemon had done it for the same user
        self._store.tags.set(tag, self._store.tags.resolve(module), owner=DEFAULT_OWNER)

    def list(self) -> list[ModuleInfo]:
        return list(self._store.list())
