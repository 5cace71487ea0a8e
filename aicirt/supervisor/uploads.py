"""How much each owner has uploaded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from aicirt.errors import OwnerLimitError


class Uploads:
    """Bytes by owner, since the daemon was started."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._bytes: Counter[str] = Counter()

    @contextmanager
    def counted(self, owner: str, nbytes: int) -> Iterator[None]:
        """Around an upload, which counts unless it fails. Raises OwnerLimitError if it is too much."""
        have = self._bytes[owner]
        if have + nbytes > self._limit:
            raise OwnerLimitError(
                f"owner {owner!r} has uploaded {have} bytes of new modules, of {self._limit} that one "
                f"may upload while the daemon runs; this one has {nbytes}",
                limit=self._limit,
            )
        self._bytes[owner] += nbytes
        try:
            yield
        except BaseException:
            self._bytes[owner] -= nbytes
            raise
