"""What an engine can do for controllers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Told to every controller (`aici_capability`); a verb that is missing here is refused."""

    fork: bool = True
    backtrack: bool = True
    ff_tokens: bool = True
    suspend: bool = True
    #: the engine reports log-probability and allowed mass
    logprobs: bool = True
    #: the engine takes SPARSE and DENSE rows
    dense: bool = True
    #: the largest top_k that the engine answers
    top_k: int = 64

    def to_wire(self) -> list[list[int]]:
        """[[number in aici.h, value], ...]"""
        values = (
            self.fork,
            self.backtrack,
            self.ff_tokens,
            self.suspend,
            self.logprobs,
            self.top_k,
            self.dense,
        )
        return [[number, int(value)] for number, value in enumerate(values, start=1)]


#: an engine with its own generation loop
ALL = Capabilities()
#: for an engine that can only mask: logits processors
MASK_ONLY = Capabilities(
    fork=False, backtrack=False, ff_tokens=False, suspend=False, logprobs=False, dense=True, top_k=0
)
