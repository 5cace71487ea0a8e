"""The interface of language models for samplers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray


class Model(Protocol):
    """A source of next-token distributions, which may cache work between calls."""

    def logprobs(self, histories: Sequence[tuple[int, ...]]) -> NDArray[np.float64]:
        """Returns the normalised natural log-probabilities of the next token after each history, [B, V]."""
        ...
