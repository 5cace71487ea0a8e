"""Uploaded modules at a server, as commands handle them."""

from __future__ import annotations

import builtins
from typing import Any

from aicirt.contract.modules import ModuleInfo
from pyaici.bundled import BundledController
from pyaici.rest import RestClient, ServerError
from pyaici.scripting.script import Script


class ServerPlace:
    """A `Place`. Whose something is follows from the token; what an administrator says counts for all."""

    def __init__(self, client: RestClient) -> None:
        self._client = client

    def upload(self, wasm: bytes) -> ModuleInfo:
        return _info(self._client.upload(wasm))

    def upload_script(self, script: Script) -> ModuleInfo:
        return _info(self._client.upload_script(script.language.word, script.source, script.name))

    def tag(self, module: str, tag: str) -> None:
        self._client.tag(module, tag)

    def untag(self, tag: str, force: bool) -> None:
        """The role decides, whatever `force` is."""
        self._client.untag(tag)

    def remove(self, module: str, force: bool) -> bool:
        """The role decides, whatever `force` is."""
        self._client.remove(module)
        try:
            self._client.describe(module)
        except ServerError as error:
            if error.status == 404:
                return True
            raise
        return False

    def list(self) -> list[ModuleInfo]:
        """What the user has uploaded or can find by a tag; all, for administrators."""
        return [_info(found) for found in self._client.list()["data"]]

    def bundled(self) -> builtins.list[BundledController]:
        return [
            BundledController(found["name"], found["description"], found["example_arg"])
            for found in self._client.list()["bundled"]
        ]


def _info(described: dict[str, Any]) -> ModuleInfo:
    callbacks = {f"has_{name}": True for name in described["callbacks"]}
    return ModuleInfo.from_wire({**callbacks, **described})
