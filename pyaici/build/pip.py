"""pip, which fetches files from the package index."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path


def pip_command() -> list[str] | None:
    """Returns the command of pip: that of this environment, or the copy that comes with Python.

    Environments of uv have no pip. Returns None if there is neither.
    """
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    if (bundled := importlib.util.find_spec("ensurepip")) is not None and bundled.origin is not None:
        for wheel in sorted((Path(bundled.origin).parent / "_bundled").glob("pip-*.whl")):
            return [sys.executable, f"{wheel}/pip"]
    return None
