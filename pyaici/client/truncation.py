"""Leaves out unlikely tokens as a row's options for truncation ask, on any device of torch.

Torch is imported when a function is called, so this module works without torch. docs/abi.md defines the
options.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from aicirt.contract.messages import Truncation

#: lines that are sorted at a time: each takes some 50 bytes for each token
_LINES = 16


def truncate(scaled: torch.Tensor, options: Sequence[Truncation]) -> None:
    """Sets the tokens that are left out to -inf, in place. Each option keeps at least one token.

    `scaled`: float32 [len(options), N], logits after masks and biases, divided by the sampling temperature;
    each line has a token that is not -inf, and none that is +inf. ``options[i]`` is for line i: with a number
    that is 0, the option keeps all tokens. Ties rank by token.
    """
    for start in range(0, len(options), _LINES):
        lines = scaled[start : start + _LINES]
        lines.masked_fill_(_left_out(lines, options[start : start + _LINES]), -math.inf)


def _left_out(scaled: torch.Tensor, options: Sequence[Truncation]) -> torch.Tensor:
    import torch

    def column(name: str, otherwise: float) -> torch.Tensor:
        numbers = [getattr(each, name) or otherwise for each in options]
        return torch.tensor(numbers, dtype=torch.float64, device=scaled.device)[:, None]

    values, order = scaled.sort(dim=1, descending=True, stable=True)
    below = (values - values[:, :1]).double()
    if any(each.top_n_sigma for each in options):
        allowed = below > -math.inf
        count = allowed.sum(dim=1, keepdim=True)
        mean = below.where(allowed, 0).sum(dim=1, keepdim=True) / count
        variance = (below - mean).square().where(allowed, 0).sum(dim=1, keepdim=True) / count
        least = (-column("top_n_sigma", math.inf) * variance.sqrt()).nan_to_num(nan=-math.inf)
        below.masked_fill_(below < least, -math.inf)
    below.masked_fill_(below < column("min_p", 0).log(), -math.inf)
    rank = torch.arange(below.shape[1], device=scaled.device)
    weights = below.exp() * (rank < column("top_k", math.inf))
    if any(each.typical_p for each in options):
        possible = weights > 0
        total = weights.sum(dim=1, keepdim=True)
        mean = (weights * below.where(possible, 0)).sum(dim=1, keepdim=True) / total
        far = (below - mean).abs().where(possible, math.inf)
        nearest = far.sort(dim=1, stable=True).indices
        kept = _until(weights.gather(1, nearest), column("typical_p", math.inf))
        weights *= torch.zeros_like(kept).scatter(1, nearest, kept)
    kept = _until(weights, column("top_p", math.inf)) & (weights > 0)
    return torch.zeros_like(kept).scatter(1, order, ~kept)


def _until(weights: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
    """Returns which weights [B, N] come until their sum reaches a share [B, 1] of all; 1 or more: all."""
    before = weights.cumsum(dim=1) - weights
    return (before < share * weights.sum(dim=1, keepdim=True)) | (share >= 1)
