"""Committed lists of which cases of a suite fail.

A case that begins to fail fails the test; one that no longer does must be taken off the list, which
AICI_RATCHET=1 does.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path


def check_ratchet(path: Path, results: Mapping[str, bool]) -> None:
    """Compares results by case, True = as wanted, with the file: a count and the names of those that fail."""
    failing = sorted(name for name, passed in results.items() if not passed)
    if os.environ.get("AICI_RATCHET"):
        counts = {"passing": len(results) - len(failing), "failing": failing}
        path.write_text(json.dumps(counts, indent=1) + "\n")
    known = json.loads(path.read_text())
    worse = sorted(set(failing) - set(known["failing"]))
    assert not worse, f"{len(worse)} cases fail that did not: {worse[:20]}"
    better = sorted(set(known["failing"]) - set(failing))
    assert not better, f"{len(better)} cases of {path.name} no longer fail; AICI_RATCHET=1 updates it"
    passing = len(results) - len(failing)
    assert passing == known["passing"], f"{passing} cases pass, {path.name} says {known['passing']}"
