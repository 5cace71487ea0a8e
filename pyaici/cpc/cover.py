"""The results of samplers: the cover of a prefix, and a certificate of how it was found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from aicirt.contract.errors import AiciError


class DeadPrefixError(AiciError):
    """No token sequence begins with the prefix, or the model gives all such sequences probability 0."""

    code: ClassVar[str] = "dead_prefix"


def dead(prefix: bytes, position: int) -> DeadPrefixError:
    """Returns the error for a prefix that no token continues from byte `position`."""
    shown = prefix[position:].decode("utf-8", "backslashreplace")
    return DeadPrefixError(f"A(i)=∅: no token fits {shown!r}, the prefix from byte {position} on")


@dataclass(frozen=True, slots=True)
class Cover:
    """Tokens whose text begins with the prefix; the last token reaches the end of the prefix or beyond."""

    tokens: tuple[int, ...]
    #: bytes of the tokens: the prefix, and the bytes of the last token beyond it
    text: bytes


@dataclass(frozen=True, slots=True)
class Certificate:
    """A record of how a cover was found, and of the distribution from which it was drawn."""

    #: histories that the model evaluated in this call; histories in the session's cache are not counted
    model_evals: int
    #: attempts; the last one succeeded, unless the budget was used up
    trials: int = 1
    #: bounds of ln Z, the logarithm of the probability that a text begins with the prefix
    log_z_lower: float = float("-inf")
    log_z_upper: float = 0.0
    #: upper bound of the total variation distance from the exact distribution; None: not known
    tv_bound: float | None = None
    #: the distribution is not exact, or not known to be exact
    approximate: bool = True
    #: model calls for the prefix; `pcas` counts its sampled steps, as the first implementation did
    calls_prefix: int = 0
    #: readable lines about the steps
    debug: tuple[str, ...] = ()
