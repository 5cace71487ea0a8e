"""The engine as a model for the samplers of `pyaici.cpc`: next-token distributions in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from numpy.typing import NDArray

    from pyaici.engines.hf.engine import HfEngine


class EngineModel:
    """A Transformers engine's model, beside the engine's requests; to be used between its steps.

    An engine that keeps ended sequences (``HfEngine(..., keep=8)``) feeds only what is new in a history.
    """

    def __init__(self, engine: HfEngine) -> None:
        self._engine = engine

    def logprobs(self, histories: Sequence[tuple[int, ...]]) -> NDArray[np.float64]:
        """As `pyaici.cpc.Model.logprobs`; the softmax is in float64. Raises as `HfEngine.next_logits`."""
        return log_softmax(self._engine.next_logits(histories))


def log_softmax(logits: torch.Tensor) -> NDArray[np.float64]:
    """Log-probabilities, float64 [B, N], from logits, float32 [B, N]."""
    rows = logits.numpy().astype(np.float64)
    rows -= rows.max(axis=1, keepdims=True)
    rows -= np.log(np.exp(rows).sum(axis=1, keepdims=True))
    return rows
