"""Writes tiny models of the Transformers tests as GGUF files, with the same weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from tests.pyaici.engines.batching.support import BOS, EOS

#: settings of a Gemma3TextConfig: five of six layers see eight tokens
WINDOWED = {
    "num_hidden_layers": 6,
    "sliding_window": 8,
    "query_pre_attn_scalar": 8,
    "tie_word_embeddings": False,  # texts would repeat one token
}


def write_gguf(model: Any, path: Path, template: str | None = None) -> Path:
    """Writes a LlamaForCausalLM or Gemma3ForCausalLM of the library whose tokens are bytes.

    `template`: its chat template.
    """
    config = model.config
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    gemma = config.model_type == "gemma3_text"
    writer = gguf.GGUFWriter(path, "gemma3" if gemma else "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    rope = config.rope_parameters
    writer.add_rope_freq_base((rope["full_attention"] if gemma else rope)["rope_theta"])
    if gemma:
        writer.add_sliding_window(config.sliding_window)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    alphabet = _byte_alphabet()
    # the first is the result of the only merge, which special tokens never take part in
    unused = ["<s></s>", *(f"<unused{token}>" for token in range(EOS + 2, config.vocab_size))]
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
    if template is not None:
        writer.add_chat_template(template)
    for name, values in _tensors(model):
        writer.add_tensor(name, np.ascontiguousarray(values, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _tensors(model: Any) -> Iterator[tuple[str, Any]]:
    """Yields name and values of each tensor, as llama.cpp has them."""
    config = model.config
    gemma = config.model_type == "gemma3_text"
    architecture = gguf.MODEL_ARCH.GEMMA3 if gemma else gguf.MODEL_ARCH.LLAMA
    names = gguf.get_tensor_name_map(architecture, config.num_hidden_layers)
    for name, weight in model.state_dict().items():
        values = weight.numpy()
        if gemma:
            values = values + name.endswith("norm.weight")  # the library adds 1 at each pass
        elif name.endswith("q_proj.weight"):
            values = _interleaved(values, config.num_attention_heads)
        elif name.endswith("k_proj.weight"):
            values = _interleaved(values, config.num_key_value_heads)
        yield names.get_name(name, try_suffixes=(".weight",)), values


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
