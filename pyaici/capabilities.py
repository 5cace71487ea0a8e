"""What an engine can do for controllers."""

from __future__ import annotations

from dataclasses import dataclass

#: its number in aici.h, behind two that the runtime knows itself
_HOLD_END = 10


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
    #: an end-of-sequence token does not end the sequence where the controller holds it (AICI_MID_HOLD_END)
    hold_end: bool = True

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
        told = [[number, int(value)] for number, value in enumerate(values, start=1)]
        return [*told, [_HOLD_END, int(self.hold_end)]]

    @classmethod
    def from_wire(cls, told: list[list[int]]) -> Capabilities:
        """What `to_wire` has made."""
        found = {entry[0]: entry[1] for entry in told}
        return cls(
            fork=bool(found[1]),
            backtrack=bool(found[2]),
            ff_tokens=bool(found[3]),
            suspend=bool(found[4]),
            logprobs=bool(found[5]),
            top_k=found[6],
            dense=bool(found[7]),
            hold_end=bool(found[_HOLD_END]),
        )


#: an engine with its own generation loop
ALL = Capabilities()
#: for an engine that can only mask: logits processors
MASK_ONLY = Capabilities(
    fork=False,
    backtrack=False,
    ff_tokens=False,
    suspend=False,
    logprobs=False,
    dense=True,
    top_k=0,
    hold_end=False,
)
