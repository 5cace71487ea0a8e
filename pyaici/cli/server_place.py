"""A server as a place of uploaded modules."""

from __future__ import annotations

import builtins
from typing import Any

from aicirt.contract.modules import ModuleInfo
from pyaici.bundled import BundledController
from pyaici.rest import RestClient, ServerError
from pyaici.scripting.script import Script


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
