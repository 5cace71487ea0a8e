"""Kinds of Transformers models, compared with the library, and texts without a tokenizer."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pyaici import HfEngine, Request
from pyaici.tokens import Vocabulary
from tests.pyaici.engines.batching.support import BOS, EOS, make_model

PROMPTS = [[BOS, 72, 101, 108], [BOS], [65] * 40, [BOS, 1, 2, 3, 4, 5, 6, 7, 8, 9]]


def test_a_text_needs_a_tokenizer(model: Any, vocabulary: Vocabulary) -> None:
    engine = HfEngine(model, vocabulary=vocabulary)
    with pytest.raises(ValueError, match="tokenizer"):
        engine.add(Request("text"))
    assert not engine.busy


@pytest.mark.parametrize(
    ("config", "settings"),
    [
        ("LlamaConfig", {"attn_implementation": "eager"}),
        ("MistralConfig", {"sliding_window": 6}),
        ("Qwen2Config", {}),
        ("GPT2Config", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 256}),
        (
            "Gemma3TextConfig",
            {
                "sliding_window": 6,
                "layer_types": ["sliding_attention", "full_attention"],
                "tie_word_embeddings": False,
            },
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_other_models_generate_the_same_tokens_as_the_library(
    config: str, settings: dict[str, Any], vocabulary: Vocabulary
) -> None:
    model = make_model(config, **settings)
    engine = HfEngine(model, vocabulary=vocabulary)
    results = engine.run([Request(p, max_tokens=20) for p in PROMPTS])
    for prompt, result in zip(PROMPTS, results, strict=True):
        ids = torch.tensor([prompt])
        for _ in range(20):  # a full recompute for each token
            logits = model(input_ids=ids, use_cache=False).logits[0, -1, :258]
            ids = torch.cat([ids, logits.argmax().view(1, 1)], dim=1)
            if ids[0, -1] == EOS:
                break
        assert result.tokens == ids[0].tolist()


def test_models_that_cannot_be_run_are_refused(vocabulary: Vocabulary) -> None:
    with pytest.raises(ValueError, match="attention"):  # some of its layers have states
        HfEngine(make_model("Qwen3NextConfig"), vocabulary=vocabulary)


def test_a_model_that_ignores_positions_is_refused(vocabulary: Vocabulary) -> None:
    broken = make_model()
    rotary = broken.model.rotary_emb.forward
    broken.model.rotary_emb.forward = lambda x, position_ids: rotary(
        x, torch.arange(position_ids.shape[1])[None].expand_as(position_ids)
    )
    with pytest.raises(ValueError, match="different lengths"):
        HfEngine(broken, vocabulary=vocabulary)
