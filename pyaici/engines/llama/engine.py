"""The engine for GGUF models."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Literal

from aicirt.system.resources import free_bytes
from pyaici.engines.batching.budget import Budget
from pyaici.engines.batching.engine import BatchingEngine
from pyaici.engines.llama.runner import LlamaRunner
from pyaici.tokens import load_vocabulary

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyaici.client.runtime import Runtime
    from pyaici.engines.llama.model import LlamaModel
    from pyaici.tokens import Vocabulary

#: The library's cache grows in steps of this many tokens, and is allocated at once.
_STEP = 256
MIN_TOKENS = 1024
#: Without a number from the user, the cache holds this many texts of the greatest length, if that takes no
#: more than this share of the free memory.
_TEXTS = 2
_SHARE = 0.125


class LlamaEngine(BatchingEngine):
    """Generates text with a model of llama.cpp under the control of a runtime's controllers.

    Use it from one thread. If there is a runtime, the engine registers the model's vocabulary with it. The
    caller closes the runtime and the model, after the engine.
    """

    def __init__(
        self,
        model: LlamaModel,
        runtime: Runtime | None = None,
        *,
        vocabulary: Vocabulary | None = None,
        keep: int = 0,
        cache_tokens: int | Literal["auto"] = "auto",
        threads: int = 1,
        second: Mapping[str, tuple[LlamaModel, Vocabulary]] | None = None,
    ) -> None:
        """`vocabulary` overrides the vocabulary of the model's file. `keep`: see `BatchingEngine`.

        `cache_tokens`: most tokens of the key-value cache, all sequences together; its memory is allocated
        here. "auto" means two texts of the greatest length, but at most an eighth of the free memory. Forks
        share the tokens that they have in common. `threads`: of the model. `second`: second models by name,
        each with its vocabulary; the cache of each has room for as many tokens. The caller closes them, too.

        Raises ValueError if there is no memory for the cache, and VocabularyError for a tokenizer whose
        bytes are unknown, or a second model with other tokens.
        """
        if vocabulary is None:
            vocabulary = load_vocabulary(model.path, vocab_size=model.num_tokens)
        runner = LlamaRunner(model, _cache_size(cache_tokens, model), threads=threads)
        self._llama = runner
        #: the model, and the second ones
        self.models = [model, *(each for each, _ in (second or {}).values())]
        # a sequence that ends may be kept while the request that takes its place starts
        budget = Budget(runner.cache.num_cells, uniform=False, most_sequences=runner.cache.num_sequences)
        others: dict[str, tuple[LlamaRunner, Vocabulary]] = {}
        with contextlib.ExitStack() as opened:
            opened.callback(runner.close)
            for name, (each, known) in (second or {}).items():
                other = LlamaRunner(each, runner.cache.num_cells, threads=threads)
                opened.callback(other.close)
                others[name] = other, known
            super().__init__(
                runner, vocabulary, model.tokenizer, runtime, keep=keep, budget=budget, second=others
            )
            self._opened = opened.pop_all()

    def close(self) -> None:
        """See `BatchingEngine.close`. Frees the cache too; the engine cannot be used again."""
        try:
            super().close()
        finally:
            self._opened.close()


def _cache_size(asked: int | Literal["auto"], model: LlamaModel) -> int:
    """Returns the tokens of the cache. Raises ValueError for a number below `MIN_TOKENS`."""
    if asked == "auto":
        most = int(free_bytes() * _SHARE) // max(1, model.token_bytes)
        tokens = max(MIN_TOKENS, min(_TEXTS * model.trained_context, most))
    elif asked < MIN_TOKENS:
        raise ValueError(f"cache_tokens is {asked}; it must be at least {MIN_TOKENS}")
    else:
        tokens = asked
    return -(-tokens // _STEP) * _STEP
