"""Names for artifacts: the SHA-256 of everything that goes into them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path


def digest(rule: object, root: Path, files: Iterable[Path]) -> str:
    """Hex SHA-256 of ``repr(rule)`` and of contents of `files` and their names below `root`, in order.

    Names are relative so that two checkouts of the same sources share their artifacts. A file that is gone
    counts as empty: its name is in the digest, and the compiler will say what is missing.
    """
    state = hashlib.sha256(repr(rule).encode())
    for path in files:
        content = path.read_bytes() if path.is_file() else b""
        state.update(f"\n{os.path.relpath(path, root)} {hashlib.sha256(content).hexdigest()}".encode())
    return state.hexdigest()
