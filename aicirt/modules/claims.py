"""Who has uploaded which module, and when."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aicirt.errors import NotOwnerError
from aicirt.modules.table import Table


@dataclass(slots=True)
class Claim:
    """What is known of one module. Of one from the time before there were claims, nothing."""

    #: Unix seconds of the first upload; 0 = unknown
    created: float = 0.0
    #: Unix seconds of each owner's first upload
    owners: dict[str, float] = field(default_factory=dict)


class Claims:
    """Claims to the modules of one store, by module id, in one file, which several processes may change."""

    def __init__(self, directory: Path) -> None:
        self._table = Table(directory, "claims")

    def read(self) -> dict[str, Claim]:
        """All of them."""
        return {module: Claim(**row) for module, row in self._table.read().items()}

    @contextmanager
    def changing(self) -> Iterator[ClaimsChange]:
        """Around a change, and whatever must not happen at the same time as another one."""
        with self._table.changing() as rows:
            yield ClaimsChange(rows)


class ClaimsChange:
    """The claims, while nobody else can change them."""

    def __init__(self, rows: dict[str, Any]) -> None:
        self._rows = rows

    def owners(self, module: str) -> set[str]:
        """Who has a claim to it."""
        return set(self._rows.get(module, {}).get("owners", ()))

    def add(self, module: str, owner: str) -> None:
        """`owner` has uploaded it; who has before keeps the time of that."""
        now = time.time()
        row = self._rows.setdefault(module, {"created": now, "owners": {}})
        row["owners"].setdefault(owner, now)

    def require(self, module: str, owner: str) -> None:
        """Raises NotOwnerError if `owner` has no claim to it."""
        owners = self.owners(module)
        if owner not in owners:
            who = f"{len(owners)} others have" if owners else "nobody is known to have"
            raise NotOwnerError(
                f"owner {owner!r} has not uploaded module {module}, {who}: only who has uploaded a module "
                "may remove it, or an administrator, by force"
            )

    def drop(self, module: str, owner: str) -> None:
        """`owner` wants it no more."""
        self._rows.get(module, {}).get("owners", {}).pop(owner, None)

    def abandoned(self, module: str) -> bool:
        """Whether all who had a claim to it have dropped it; false where there never was one."""
        row = self._rows.get(module)
        return row is not None and not row["owners"]

    def forget(self, module: str) -> None:
        """It is there no more."""
        self._rows.pop(module, None)
