"""A model with random weights that answers in milliseconds, for tests that ignore the answers."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from pyaici.models import default_model_path


def make_tiny_model(folder: Path, template: str | None = None, sharp: float = 50.0) -> Path:
    """Saves a model with the default model's tokenizer, and returns its folder.

    `template`: its chat template; None = that of the default model. `sharp`: factor of the logits. With 50,
    few tokens are likely, as in a trained model; otherwise rounding errors would decide many samples.
    """
    tokenizer = AutoTokenizer.from_pretrained(default_model_path())
    tokenizer.chat_template = template or tokenizer.chat_template
    tokenizer.save_pretrained(folder)
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=8192,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    model = LlamaForCausalLM(config)
    model.lm_head.weight.data *= sharp
    model.save_pretrained(folder)
    return folder
