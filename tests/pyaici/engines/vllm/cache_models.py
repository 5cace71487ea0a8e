"""Tiny models with random weights whose caches differ from those of full attention."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from pyaici.models import default_model_path

#: tokens that a layer with a sliding window sees, fewer than a block has
WINDOW = 24
_SIZES = {
    "vocab_size": 49152,
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "max_position_embeddings": 512,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "pad_token_id": 2,
    # large, so that each token depends on the ones before it
    "initializer_range": 0.3,
}
_ATTENTION = {
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "intermediate_size": 96,
}
#: Transformers' model type and configuration, by the kind of cache
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "windows": ("mistral", _ATTENTION | {"sliding_window": WINDOW}),
    "windows and full attention": (
        "gemma3_text",
        _ATTENTION
        | {
            "sliding_window": WINDOW,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "tie_word_embeddings": False,
        },
    ),
    "states": ("mamba2", {"num_heads": 4, "head_dim": 32, "state_size": 16, "n_groups": 1}),
    "states and full attention": (
        "falcon_h1",
        _ATTENTION
        | {
            "mamba_d_ssm": 128,
            "mamba_n_heads": 4,
            "mamba_d_head": 32,
            "mamba_d_state": 16,
            "mamba_n_groups": 1,
        },
    ),
}


def make_cache_model(kind: str, folder: Path) -> Path:
    """Writes a model in float32 with the default tokenizer. Returns `folder`."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    model_type, settings = KINDS[kind]
    torch.manual_seed(1)
    config = AutoConfig.for_model(model_type, **(_SIZES | settings))
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(default_model_path("float32") / name, folder)
    return folder
