"""What a sampler returns: the tokens that cover a prefix, and how it came to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from aicirt.contract.errors import AiciError


class DeadPrefixError(AiciError):
    """No sequence of tokens begins with the prefix, or the model gives all of them the probability 0."""

    code: ClassVar[str] = "dead_prefix"


def dead(prefix: bytes, position: int) -> DeadPrefixError:
    """The error for a prefix of which nothing goes on from this byte."""
    shown = prefix[position:].decode("utf-8", "backslashreplace")
    return DeadPrefixError(f"A(i)=∅: no token goes with {shown!r}, byte {position} of the prefix and on")


@dataclass(frozen=True, slots=True)
class Cover:
    """Tokens whose text begins with the prefix, the last of which reaches its end or beyond."""

    tokens: tuple[int, ...]
    #: their bytes: the prefix, and what the last token has beyond it
    text: bytes


@dataclass(frozen=True, slots=True)
class Certificate:
    """How a cover was found, and what is known about the distribution that it was drawn from."""

    #: histories that the model was asked about in this call; those it remembered cost nothing
    model_evals: int
    #: attempts, the last of which succeeded
    trials: int = 1
    #: bounds of ln Z, the logarithm of the probability that a text begins with the prefix
    log_z_lower: float = float("-inf")
    log_z_upper: float = 0.0
    #: the total variation distance from the exact distribution is at most this; None: not known
    tv_bound: float | None = None
    #: not drawn from the exact distribution, or not known to be
    approximate: bool = True
    #: model calls for the prefix, as the first implementation of the walk counts them: sampled steps
    calls_prefix: int = 0
    #: lines about the steps, for people
    debug: tuple[str, ...] = ()
