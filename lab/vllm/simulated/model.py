"""A tiny model: the logits after a text, from a fixed table of random numbers.

Every engine gets the same numbers, whatever it computes together: nothing is added up in another order. A
wrong, missing or exchanged token anywhere in the text changes all logits after it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pyaici.engines.batching.budget import Budget
from pyaici.engines.batching.engine import BatchingEngine
from pyaici.engines.batching.model import TextCache, TextSlot
from pyaici.engines.batching.sampler import NumpySampler
from pyaici.models import default_model_path
from pyaici.tokens import load_vocabulary

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyaici.engines.batching.model import Feed

#: tokens of the default model's vocabulary
NUM_TOKENS = 49152
#: tokens of one text
MAX_TOKENS = 1 << 16
_TABLE = 1 << 18
#: the weights of the last token and of all tokens
_NEAR, _FAR = 2.0, 0.25
#: kinds of last tokens: few, so that a text repeats itself and drafts are accepted
_KINDS = 64
#: the token that ends a text, the number of special tokens, and their part of the logits: they are rare
END, NUM_SPECIAL, _SELDOM = 2, 17, -40.0
#: the hash of a text, modulo a prime
_PRIME, _FACTOR = (1 << 31) - 1, 48271


class TinyModel:
    """The model."""

    def __init__(self) -> None:
        random = np.random.default_rng(1)
        self._table = random.standard_normal(_TABLE + NUM_TOKENS, np.float32)
        # frequent tokens have small ids
        self._common = -0.5 * np.log1p(np.arange(NUM_TOKENS, dtype=np.float32))
        self._common[:NUM_SPECIAL] = _SELDOM

    def logits(self, tokens: Sequence[int], adapter: int = 0) -> NDArray[np.float32]:
        """Returns the logits after a text, float32 [NUM_TOKENS]. `adapter`: a number that changes them."""
        whole = adapter
        for token in tokens:
            whole = (whole * _FACTOR + token + 1) % _PRIME
        logits = self._common + np.float32(_NEAR) * self._window(tokens[-1] % _KINDS * 1009)
        logits += np.float32(_FAR) * self._window(whole)
        return logits

    def _window(self, hashed: int) -> NDArray[np.float32]:
        start = hashed % _TABLE
        return self._table[start : start + NUM_TOKENS]


class TinyRunner:
    """The model for `BatchingEngine`; see `pyaici.engines.batching.model.Runner`."""

    pass_cost = 1 << 30
    token_seconds = 0.0
    num_tokens = num_logits = NUM_TOKENS
    max_tokens = MAX_TOKENS

    def __init__(self) -> None:
        self.cache = TextCache()
        self.sampler = NumpySampler()
        self._model = TinyModel()

    def run(self, feeds: Sequence[Feed]) -> list[Any]:
        """See `Runner`."""
        lines: list[Any] = []
        for feed in feeds:
            slot = feed.slot
            assert isinstance(slot, TextSlot)
            slot.tokens[slot.length :] = feed.tokens
            before, slot.length = slot.length, len(slot.tokens)
            if feed.every:
                ends = range(before + 1, slot.length + 1)
                lines.append([self._model.logits(slot.tokens[:end]) for end in ends])
            else:
                lines.append(self._model.logits(slot.tokens))
        return lines


def tiny_engine(folder: Path, runtime: Any) -> BatchingEngine:
    """Returns our own engine with the tiny model. `folder`: of `make_tiny_model`. `runtime`: a `Runtime`."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    vocabulary = load_vocabulary(tokenizer, vocab_size=NUM_TOKENS, eos=END)
    budget = Budget(None, uniform=False)
    return BatchingEngine(TinyRunner(), vocabulary, tokenizer, runtime, keep=0, budget=budget)


def make_tiny_model(folder: Path) -> Path:
    """Writes the folder of a model without weights, with the default tokenizer. Returns `folder`."""
    whole = default_model_path("float32")
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "float32",
        "vocab_size": NUM_TOKENS,
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "max_position_embeddings": MAX_TOKENS,
        "bos_token_id": 1,
        "eos_token_id": END,
    }
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        shutil.copy(whole / name, folder)
    return folder
