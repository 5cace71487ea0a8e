"""Committed lists of the failing cases of a suite.

A test fails if a case begins to fail, or if a case of the list no longer fails. AICI_RATCHET=1 updates the
list.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path


def check_ratchet(path: Path, results: Mapping[str, bool]) -> None:
    """Compares results by case (True = passed) with the file: number of passing cases, failing cases."""
    failing = sorted(name for name, passed in results.items() if not passed)
    if os.environ.get("AICI_RATCHET"):
        counts = {"passing": len(results) - len(failing), "failing": failing}
        path.write_text(json.dumps(counts, indent=1) + "\n")
    known = json.loads(path.read_text())
    worse = sorted(set(failing) - set(known["failing"]))
    assert not worse, f"{len(worse)} cases newly fail: {worse[:20]}"
    better = sorted(set(known["failing"]) - set(failing))
    assert not better, (
        f"{len(better)} cases of {path.name} no longer fail; run with AICI_RATCHET=1 to update it"
    )
    passing = len(results) - len(failing)
    assert passing == known["passing"], f"{passing} cases pass, {path.name} says {known['passing']}"
