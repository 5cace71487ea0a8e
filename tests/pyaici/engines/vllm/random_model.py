"""A tiny Llama with random weights, for tests that need a number of heads that ranks can share.

The default model has nine attention heads and three of keys and values. This one has four and two.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from pyaici.models import default_model_path


def make_random_model(folder: Path) -> Path:
    """Writes a model in float32 with the default tokenizer. Returns `folder`."""
    # not above: Transformers fixes which of the variables of `ENVIRONMENT` torch follows
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    whole = default_model_path("float32")
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=1 << 16,
        bos_token_id=0,
        eos_token_id=0,
        # larger than usual: the two most likely tokens must differ by more than the order of a sum changes
        initializer_range=0.1,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(whole / name, folder)
    return folder
