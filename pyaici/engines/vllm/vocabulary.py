"""The vocabulary of the model that a vLLM engine runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from aicirt.contract.errors import VocabularyError
from pyaici.tokens import load_vocabulary

if TYPE_CHECKING:
    from pyaici.tokens import Vocabulary


def engine_vocabulary(vllm_config: Any) -> Vocabulary:
    """As wide as the engine's logits. Raises VocabularyError if the tokenizer's bytes cannot be known."""
    from vllm.tokenizers import cached_tokenizer_from_config

    model = vllm_config.model_config
    tokenizer = cached_tokenizer_from_config(model)
    if tokenizer is None:
        raise VocabularyError("controllers need a tokenizer: start vLLM without skip_tokenizer_init")
    eos = model.try_get_generation_config().get("eos_token_id")
    width = model.get_vocab_size()
    try:
        return load_vocabulary(tokenizer, vocab_size=width, eos=eos)
    except VocabularyError:
        # a tokenizer of vLLM's own: its files say it too
        path = Path(model.tokenizer)
        if not path.exists():
            raise
        return load_vocabulary(path, vocab_size=width, eos=eos)
