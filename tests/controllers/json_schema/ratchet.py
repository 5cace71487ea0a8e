"""Ratchets: committed files with the outcome of each case of a suite.

A case that comes out otherwise fails the test, for better or worse. ``AICI_UPDATE_RATCHETS=1`` writes what is
better into the file; what is worse fails all the same.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

#: from bad to good; cases that are not in the file are as good as can be
RANKS = ("refused", "refuses valid", "good")


def check(path: Path, found: dict[str, str]) -> None:
    """Compares the outcome of each case with the file, which lists only the cases that are not good."""
    known: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
    worse = {
        case: outcome
        for case, outcome in found.items()
        if RANKS.index(outcome) < RANKS.index(known.get(case, "good"))
    }
    better = [case for case in known if RANKS.index(found.get(case, "good")) > RANKS.index(known[case])]
    if os.environ.get("AICI_UPDATE_RATCHETS") == "1" and (not path.exists() or not worse):
        kept = {case: outcome for case, outcome in sorted(found.items()) if outcome != "good"}
        path.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
        return
    assert not worse, f"worse than {path.name} says: {worse}"
    assert not better, f"better than {path.name} says (AICI_UPDATE_RATCHETS=1 writes it): {better}"
