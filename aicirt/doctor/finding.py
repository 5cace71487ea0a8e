"""The result of one check."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class State(Enum):
    """Severity of a finding."""

    OK = "ok"
    #: works, but less well or less safely
    NOTE = "note"
    #: nothing works without it
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check. `cost` and `cure` are empty if they do not apply."""

    name: str
    state: State
    found: str
    cost: str = ""
    cure: str = ""
