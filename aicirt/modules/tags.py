"""Names for modules."""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from aicirt.errors import ModuleError, UnknownModuleError
from aicirt.modules.private import write_whole

#: what a tag looks like; no path, no module id
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_MODULE_ID = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Tag:
    name: str
    module: str
    #: who may move it; empty = anybody
    owner: str = ""


def is_module_id(text: str) -> bool:
    return bool(_MODULE_ID.fullmatch(text))


class Tags:
    """Tags of one store, in one file, which several processes may change."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "tags.json"
        self._lock = directory / ".tags.lock"

    def set(self, name: str, module: str, owner: str = "") -> Tag:
        """Name `module` `name`, or move the tag there.

        Raises `ModuleError` for a bad name, or if the tag belongs to another owner.
        """
        if not _NAME.fullmatch(name) or is_module_id(name):
            raise ModuleError(
                f"tag {name!r}: a tag has 1 to 64 of a-z, 0-9, '.', '_' and '-', starts with a letter or "
                "digit, and is not a module id"
            )
        with self._locked():
            tags = self._read()
            self._require_owner(tags.get(name), owner)
            tags[name] = Tag(name, module, owner)
            self._write(tags)
            return tags[name]

    def remove(self, name: str, owner: str = "") -> None:
        """Raises `UnknownModuleError` for an unknown tag, `ModuleError` for another owner's."""
        with self._locked():
            tags = self._read()
            if name not in tags:
                raise UnknownModuleError(f"no tag {name!r}")
            self._require_owner(tags[name], owner)
            del tags[name]
            self._write(tags)

    def resolve(self, name: str) -> str:
        """Module id of a tag, or `name` itself if it is an id. Raises `UnknownModuleError`."""
        if is_module_id(name):
            return name
        tag = self._read().get(name)
        if tag is None:
            raise UnknownModuleError(f"no module or tag {name!r}")
        return tag.module

    def list(self) -> list[Tag]:
        """All tags, by name."""
        return sorted(self._read().values(), key=lambda tag: tag.name)

    @staticmethod
    def _require_owner(tag: Tag | None, owner: str) -> None:
        if tag and tag.owner not in ("", owner):
            raise ModuleError(f"tag {tag.name!r} belongs to {tag.owner!r}")

    def _read(self) -> dict[str, Tag]:
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return {}
        return {name: Tag(**fields) for name, fields in json.loads(text).items()}

    def _write(self, tags: dict[str, Tag]) -> None:
        plain = {name: asdict(tag) for name, tag in sorted(tags.items())}
        write_whole(self._path, json.dumps(plain, indent=1).encode())

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fd = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)
