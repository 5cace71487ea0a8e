"""A model without an engine: a tokenizer of single bytes, and a chat template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from pyaici.server.models import ServedModel
from pyaici.tokens import load_vocabulary


def byte_model(template: str, special: Sequence[str] = ()) -> ServedModel:
    """Returns a model whose tokenizer decodes a prompt to the same text. `special`: its special tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE({char: number for number, char in enumerate(alphabet)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, chat_template=template, bos_token="<s>", eos_token="</s>"
    )
    tokenizer.add_special_tokens({"additional_special_tokens": list(special)})
    engine: Any = None
    return ServedModel("m", engine, tokenizer, load_vocabulary(tokenizer), len(tokenizer), 100_000)
