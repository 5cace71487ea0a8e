"""A tiny random model whose tokens are bytes, and a counter of its forward passes."""

from __future__ import annotations

from typing import Any

import torch
import transformers

BOS, EOS = 256, 257
#: the model has more logits than there are tokens
WIDTH = 288
SIZES = {
    "vocab_size": WIDTH,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "initializer_range": 0.4,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "pad_token_id": None,
}


def make_model(config_class: str = "LlamaConfig", **settings: Any) -> Any:
    """Returns a model whose weights depend only on its configuration."""
    torch.manual_seed(7)
    config = getattr(transformers, config_class)(**(SIZES | settings))
    return transformers.AutoModelForCausalLM.from_config(config).eval()


class CountingCalls:
    """Records the shape of the input of each forward pass of a model."""

    def __init__(self, model: Any) -> None:
        self.shapes: list[tuple[int, ...]] = []
        self._handle = model.register_forward_pre_hook(self._note, with_kwargs=True)

    def _note(self, module: Any, args: Any, kwargs: Any) -> None:
        self.shapes.append(tuple(kwargs["input_ids"].shape))

    def __enter__(self) -> CountingCalls:
        return self

    def __exit__(self, *exc: object) -> None:
        self._handle.remove()
