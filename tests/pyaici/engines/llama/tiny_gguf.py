"""Writes the tiny model of the Transformers tests as a GGUF file, with the same weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np

from tests.pyaici.engines.batching.support import BOS, EOS, WIDTH


def write_gguf(model: Any, path: Path) -> Path:
    """Writes a LlamaForCausalLM of the library whose tokens are bytes."""
    config, weights = model.config, {k: v.numpy() for k, v in model.state_dict().items()}
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(WIDTH)
    alphabet = _byte_alphabet()
    unused = [f"<unused{token}>" for token in range(EOS + 1, WIDTH)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([*alphabet, "<s>", "</s>", *unused])
    control, normal, not_used = (
        gguf.TokenType.CONTROL,
        gguf.TokenType.NORMAL,
        gguf.TokenType.UNUSED,
    )
    writer.add_token_types([*[normal] * 256, control, control, *[not_used] * len(unused)])
    writer.add_token_merges(["<s> </s>"])  # the library refuses a file without merges
    writer.add_bos_token_id(BOS)
    writer.add_eos_token_id(EOS)
    for name, values in _tensors(weights, config.num_hidden_layers, heads, kv_heads):
        writer.add_tensor(name, np.ascontiguousarray(values, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _tensors(weights: Any, layers: int, heads: int, kv_heads: int) -> Any:
    yield "token_embd.weight", weights["model.embed_tokens.weight"]
    yield "output_norm.weight", weights["model.norm.weight"]
    yield "output.weight", weights["lm_head.weight"]
    for number in range(layers):
        ours, theirs = f"model.layers.{number}", f"blk.{number}"
        yield f"{theirs}.attn_norm.weight", weights[f"{ours}.input_layernorm.weight"]
        yield f"{theirs}.ffn_norm.weight", weights[f"{ours}.post_attention_layernorm.weight"]
        yield f"{theirs}.attn_q.weight", _interleaved(weights[f"{ours}.self_attn.q_proj.weight"], heads)
        yield f"{theirs}.attn_k.weight", _interleaved(weights[f"{ours}.self_attn.k_proj.weight"], kv_heads)
        yield f"{theirs}.attn_v.weight", weights[f"{ours}.self_attn.v_proj.weight"]
        yield f"{theirs}.attn_output.weight", weights[f"{ours}.self_attn.o_proj.weight"]
        for part in ("gate", "up", "down"):
            yield f"{theirs}.ffn_{part}.weight", weights[f"{ours}.mlp.{part}_proj.weight"]


def _interleaved(weight: Any, heads: int) -> Any:
    """Reorders rows for llama.cpp, which rotates neighbours where the library rotates halves."""
    rows, columns = weight.shape
    halves = weight.reshape(heads, 2, rows // heads // 2, columns)
    return halves.swapaxes(1, 2).reshape(rows, columns)


def _byte_alphabet() -> list[str]:
    """Returns the characters that stand for the bytes in byte-level tokenizers (GPT-2)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(rest)) for byte in range(256)]
