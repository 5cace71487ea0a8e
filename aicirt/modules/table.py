"""A table in a file beside the modules, which several processes may change."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aicirt.modules.private import write_whole


class Table:
    """Plain data by name, in one JSON file: read without a lock, since it is always written as a whole."""

    def __init__(self, directory: Path, name: str) -> None:
        self._path = directory / f"{name}.json"
        self._lock = directory / f".{name}.lock"

    def read(self) -> dict[str, Any]:
        """What it holds now."""
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return {}
        rows: dict[str, Any] = json.loads(text)
        return rows

    @contextmanager
    def changing(self) -> Iterator[dict[str, Any]]:
        """What it holds, to be changed, by nobody else meanwhile; written at the end if it has been."""
        fd = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            before, rows = self.read(), self.read()
            yield rows
            if rows != before:
                write_whole(self._path, json.dumps(dict(sorted(rows.items())), indent=1).encode())
        finally:
            os.close(fd)
