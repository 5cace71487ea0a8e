"""The result of one check."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class State(Enum):
    """How much it matters."""

    OK = "ok"
    #: works, but less well or less safely
    NOTE = "note"
    #: nothing works without it
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Finding:
    """`cost` and `cure` are empty where there is nothing to say."""

    name: str
    state: State
    found: str
    cost: str = ""
    cure: str = ""
