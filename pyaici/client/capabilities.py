"""Capabilities: what an engine can do for controllers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from aicirt.contract.abi import (
    CAP_BACKTRACK,
    CAP_DENSE,
    CAP_DRAFTS,
    CAP_FF_TOKENS,
    CAP_FOLLOW,
    CAP_FORK,
    CAP_HOLD_END,
    CAP_LOGPROBS,
    CAP_LOOK,
    CAP_SUSPEND,
    CAP_TOP_LOGPROBS,
    LOOK_LOGITS,
    LOOK_NEVER,
)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The capabilities of an engine. Controllers query them with `aici_capability`.

    The runtime refuses a verb that the engine does not support.
    """

    fork: bool = True
    backtrack: bool = True
    ff_tokens: bool = True
    suspend: bool = True
    #: the engine reports log-probability and allowed mass
    logprobs: bool = True
    #: the engine supports SPARSE and DENSE rows
    dense: bool = True
    #: the largest `Row.top_logprobs` that the engine supports
    top_logprobs: int = 64
    #: an end-of-sequence token does not end the sequence where the controller holds it (AICI_MID_HOLD_END)
    hold_end: bool = True
    #: a controller may see a token's distribution before it decides (LOOK): never, lists of the most likely
    #: tokens, or also all logits
    look: int = LOOK_LOGITS
    #: a sequence may follow another one, and take part in sampling its tokens (FOLLOW)
    follow: bool = True
    #: the most tokens that a controller may expect after a sampled one (`DraftedSample`): 64 count
    drafts: int = 15

    def to_wire(self) -> list[list[int]]:
        """Returns [[number in aici.h, value], ...], which the caller must not change."""
        return _wire(self)

    @classmethod
    def from_wire(cls, pairs: list[list[int]]) -> Capabilities:
        """Rebuilds capabilities from `to_wire`."""
        found: dict[str, Any] = {_NUMBERS[number]: value for number, value in pairs}
        numbers = ("top_logprobs", "look", "drafts")
        return cls(**{name: value if name in numbers else bool(value) for name, value in found.items()})


#: the fields by their numbers in aici.h; the runtime adds three more
_NUMBERS = {
    CAP_FORK: "fork",
    CAP_BACKTRACK: "backtrack",
    CAP_FF_TOKENS: "ff_tokens",
    CAP_SUSPEND: "suspend",
    CAP_LOGPROBS: "logprobs",
    CAP_TOP_LOGPROBS: "top_logprobs",
    CAP_DENSE: "dense",
    CAP_HOLD_END: "hold_end",
    CAP_LOOK: "look",
    CAP_FOLLOW: "follow",
    CAP_DRAFTS: "drafts",
}


@lru_cache(maxsize=64)
def _wire(capabilities: Capabilities) -> list[list[int]]:
    return [[number, int(getattr(capabilities, name))] for number, name in _NUMBERS.items()]


#: for an engine with its own generation loop
ALL = Capabilities()
#: for an engine that can only mask, such as a logits processor
MASK_ONLY = Capabilities(
    fork=False,
    backtrack=False,
    ff_tokens=False,
    suspend=False,
    logprobs=False,
    dense=True,
    top_logprobs=0,
    hold_end=False,
    look=LOOK_NEVER,
    follow=False,
    drafts=0,
)
