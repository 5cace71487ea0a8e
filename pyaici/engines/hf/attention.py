"""Attention masks for rows of different lengths, for every kind of layer that a model has."""

from __future__ import annotations

from typing import Any

import torch

#: layer types of the library whose attention is a mask over earlier positions
_WINDOWS = {
    "full_attention": None,
    "sliding_attention": "sliding_window",
    "chunked_attention": "attention_chunk_size",
}


class AttentionMasks:
    """Builds the `attention_mask` argument of a model's forward pass."""

    def __init__(self, config: Any) -> None:
        """`config`: the model's. Raises ValueError for models whose attention a mask cannot describe."""
        text = config.get_text_config()
        self._additive = text._attn_implementation == "eager"
        if text._attn_implementation not in ("sdpa", "eager"):
            raise ValueError(
                f"the attention implementation {text._attn_implementation!r} takes no masks of our own; "
                'load the model with attn_implementation="sdpa"'
            )
        types = getattr(text, "layer_types", None)
        self._by_type = types is not None
        if types is None and getattr(text, "sliding_window", None) is not None:
            types = ["sliding_attention"]
        elif types is None and getattr(text, "attention_chunk_size", None) is not None:
            types = ["chunked_attention"]
        self._types = sorted(set(types or ["full_attention"]))
        unknown = [kind for kind in self._types if kind not in _WINDOWS]
        if unknown:
            raise ValueError(
                f"the model has {', '.join(unknown)} layers, whose state cannot be cut back or forked "
                "per row; models with full, sliding or chunked attention are supported"
            )
        self._sizes = {kind: self._size(text, kind) for kind in self._types}

    @staticmethod
    def _size(text: Any, kind: str) -> int | None:
        attribute = _WINDOWS[kind]
        return None if attribute is None else getattr(text, attribute)

    def build(self, positions: torch.Tensor, num_keys: int, dtype: torch.dtype) -> Any:
        """For queries at `positions` (int64 [B, Q]) over keys 0..num_keys-1 of each row: what each may see.

        Returns bool [B, 1, Q, K] (true = may see), or the additive form in `dtype` for eager
        attention, or a dict of them by layer type if the model has several.
        """
        masks = {kind: self._build(positions, num_keys, dtype, kind) for kind in self._types}
        return masks if self._by_type else masks[self._types[0]]

    def _build(self, positions: torch.Tensor, num_keys: int, dtype: torch.dtype, kind: str) -> torch.Tensor:
        query = positions[:, None, :, None]
        key = torch.arange(num_keys, device=positions.device)
        seen = key <= query
        size = self._sizes[kind]
        if size is not None:
            seen &= (key > query - size) if kind == "sliding_attention" else (key // size == query // size)
        if not self._additive:
            return seen
        hidden = torch.finfo(dtype).min
        return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, hidden)
