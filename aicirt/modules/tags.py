"""Names for modules."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aicirt.errors import ModuleError, NotOwnerError, UnknownModuleError
from aicirt.identity import SHORTEST_ID, looks_like_id
from aicirt.modules.table import Table

#: what a tag looks like; no path, nothing that could be an id
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Tag:
    name: str
    module: str
    #: who may move it; empty = anybody
    owner: str = ""


class Tags:
    """Tags of one store, in one file, which several processes may change."""

    def __init__(self, directory: Path) -> None:
        self._table = Table(directory, "tags")

    def set(self, name: str, module: str, owner: str = "") -> Tag:
        """Name `module` `name`, or move the tag there.

        Raises `ModuleError` for a bad name, `NotOwnerError` if the tag belongs to another owner.
        """
        if not _NAME.fullmatch(name):
            raise ModuleError(
                f"tag {name[:100]!r}: a tag has 1 to 64 of a-z, 0-9, '.', '_' and '-', and starts with a "
                "letter or digit"
            )
        if looks_like_id(name):
            raise ModuleError(
                f"tag {name!r} could be taken for the id of a module, since it has {SHORTEST_ID} or more "
                "digits from 0-9 and a-f and nothing else: add another letter, a '.', '_' or '-'"
            )
        tag = Tag(name, module, owner)
        with self._table.changing() as tags:
            _require_owner(tags.get(name), owner)
            tags[name] = asdict(tag)
        return tag

    def remove(self, name: str, owner: str = "", *, force: bool = False) -> None:
        """`force`: whosever it is. Raises `UnknownModuleError` for an unknown tag, `NotOwnerError` for
        another owner's."""
        with self._table.changing() as tags:
            if name not in tags:
                raise UnknownModuleError(f"no tag {name!r}")
            if not force:
                _require_owner(tags[name], owner)
            del tags[name]

    def modules(self) -> dict[str, str]:
        """Module id by tag."""
        return {name: row["module"] for name, row in self._table.read().items()}

    def list(self) -> list[Tag]:
        """All tags, by name."""
        return sorted((Tag(**tag) for tag in self._table.read().values()), key=lambda tag: tag.name)


def _require_owner(tag: dict[str, Any] | None, owner: str) -> None:
    if tag and tag["owner"] not in ("", owner):
        raise NotOwnerError(f"tag {tag['name']!r} belongs to {tag['owner']!r}")
