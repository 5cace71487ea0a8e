"""Names for artifacts: the SHA-256 of all their inputs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path


def digest(rule: object, root: Path, files: Iterable[Path]) -> str:
    """Returns the hex SHA-256 of ``repr(rule)`` and of the contents and relative names of `files`, in order.

    Names are relative to `root`, so that two checkouts of the same sources share their artifacts. A missing
    file counts as empty: its name is in the digest, and the compiler will report the missing file.
    """
    state = hashlib.sha256(repr(rule).encode())
    for path in files:
        content = path.read_bytes() if path.is_file() else b""
        state.update(f"\n{os.path.relpath(path, root)} {hashlib.sha256(content).hexdigest()}".encode())
    return state.hexdigest()
