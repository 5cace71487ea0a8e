"""What an engine has done since it was made."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counts:
    """Steps of the engine; tokens of all sequences, and forks."""

    #: in which something came of it, or the model ran
    steps: int = 0
    sampled: int = 0
    forced: int = 0
    backtracked: int = 0
    forks: int = 0
