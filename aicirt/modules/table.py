"""A table in a file beside the modules, which several processes may change."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aicirt.errors import RuntimeFailure
from aicirt.modules.private import is_private_file, read_regular, write_whole

#: bytes of a table: millions of rows
_MOST = 1 << 30


class Table:
    """Plain data by name, in one JSON file: read without a lock, since it is always written as a whole.

    Raises RuntimeFailure for a file that another user has put there.
    """

    def __init__(self, directory: Path, name: str) -> None:
        self._path = directory / f"{name}.json"
        self._lock = directory / f".{name}.lock"

    def read(self) -> dict[str, Any]:
        """What it holds now."""
        data = read_regular(self._path, _MOST, ours=True)
        if data is None:
            if os.path.lexists(self._path):
                raise self._foreign(self._path)
            return {}
        try:
            rows: dict[str, Any] = json.loads(data)
        except ValueError:
            raise RuntimeFailure(f"{self._path} is damaged: repair or remove it") from None
        return rows

    @contextmanager
    def changing(self) -> Iterator[dict[str, Any]]:
        """What it holds, to be changed, by nobody else meanwhile; written at the end if it has been."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            fd = os.open(self._lock, flags, 0o600)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.EACCES):
                raise
            raise self._foreign(self._lock) from None
        try:
            if not is_private_file(self._lock):  # whoever owns it could hold it for ever
                raise self._foreign(self._lock)
            fcntl.flock(fd, fcntl.LOCK_EX)
            before, rows = self.read(), self.read()
            yield rows
            if rows != before:
                write_whole(self._path, json.dumps(dict(sorted(rows.items())), indent=1).encode())
        finally:
            os.close(fd)

    @staticmethod
    def _foreign(path: Path) -> RuntimeFailure:
        return RuntimeFailure(
            f"{path} is no file of this user's alone: remove it, or choose another folder (--store)"
        )
