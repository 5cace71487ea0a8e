"""A tiny random model whose tokens are bytes, and a counter of its forward passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers

from pyaici.engines.batching.engine import BatchingEngine
from pyaici.engines.hf import HfEngine
from pyaici.engines.llama import LlamaEngine, LlamaModel
from pyaici.tokens import Vocabulary

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


def make_engine(model: Any, **options: Any) -> BatchingEngine:
    """Returns an engine with the model: LlamaEngine for a LlamaModel, else HfEngine."""
    return LlamaEngine(model, **options) if isinstance(model, LlamaModel) else HfEngine(model, **options)


def byte_vocabulary() -> Vocabulary:
    """A token for each byte, and two special tokens. The other ids are no tokens."""
    names = {BOS: "<s>", EOS: "</s>"}
    return Vocabulary(
        [bytes([i]) for i in range(256)] + [b"", b""], names, eos=(EOS,), bos=BOS, vocab_size=WIDTH
    )


def generate_greedily(model: Any) -> Callable[..., list[int]]:
    """Returns a function that generates with the library. Ids that are no tokens are never chosen."""

    def run(prompt: list[int], max_tokens: int, eos: int | None = EOS) -> list[int]:
        out = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            do_sample=False,
            max_new_tokens=max_tokens,
            eos_token_id=eos,
            pad_token_id=0,
            suppress_tokens=list(range(258, WIDTH)),
        )
        return list(out[0, len(prompt) :].tolist())

    return run
