"""What the samplers need of a language model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray


class Model(Protocol):
    """Next-token distributions; it may keep whatever makes the next ones cheaper."""

    def logprobs(self, histories: Sequence[tuple[int, ...]]) -> NDArray[np.float64]:
        """Natural logarithms of the next token's probabilities after each history: [B, V], normalised."""
        ...
