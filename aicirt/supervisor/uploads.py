"""How much of what is stored counts for each owner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aicirt.errors import OwnerLimitError
from aicirt.settings import LEAST_UPLOAD


class Uploads:
    """Bytes by owner: what is stored, which a restart does not change, and what is being uploaded."""

    def __init__(self, limit: int, stored: Callable[[str], int]) -> None:
        """`stored`: bytes that an owner has in the store."""
        self._limit = limit
        self._stored = stored
        self._coming: Counter[str] = Counter()

    @contextmanager
    def counted(self, owner: str, size: int) -> Iterator[None]:
        """Around an upload of so many bytes, none if it is stored already. Raises OwnerLimitError."""
        if not size:
            yield
            return
        nbytes = max(LEAST_UPLOAD, size)
        have = self._stored(owner) + self._coming[owner]
        if have + nbytes > self._limit:
            raise OwnerLimitError(
                f"owner {owner!r} has uploaded modules and scripts that count {have} bytes, of {self._limit} "
                f"(owner_upload_bytes); this one counts {nbytes}: remove some before",
                limit=self._limit,
            )
        self._coming[owner] += nbytes
        try:
            yield
        finally:
            self._coming[owner] -= nbytes
            self._coming += Counter()  # forgets those who have none
