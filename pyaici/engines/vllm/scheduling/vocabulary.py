"""The vocabulary of the model that vLLM runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aicirt.contract.errors import VocabularyError
from pyaici.engines.connection import tokenizer_vocabulary

if TYPE_CHECKING:
    from pyaici.tokens import Vocabulary


def engine_vocabulary(vllm_config: Any) -> Vocabulary:
    """Returns the model's vocabulary, as wide as its logits.

    Raises VocabularyError if the bytes of its tokens cannot be determined.
    """
    from vllm.tokenizers import cached_tokenizer_from_config

    model = vllm_config.model_config
    tokenizer = cached_tokenizer_from_config(model)
    if tokenizer is None:
        raise VocabularyError("controllers need a tokenizer: start vLLM without skip_tokenizer_init")
    eos = model.try_get_generation_config().get("eos_token_id")
    return tokenizer_vocabulary(tokenizer, model.tokenizer, model.get_vocab_size(), eos)
