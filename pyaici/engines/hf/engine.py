"""The engine for causal language models of the Transformers library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch

from pyaici.engines.batching.budget import Budget
from pyaici.engines.batching.engine import BatchingEngine
from pyaici.engines.batching.model import Feed
from pyaici.engines.hf.cache import cache_limit
from pyaici.engines.hf.recurrent import RecurrentRunner, keeps_states
from pyaici.engines.hf.runner import ModelRunner
from pyaici.tokens import load_vocabulary

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyaici.client.runtime import Runtime
    from pyaici.engines.batching.model import LogitsRow
    from pyaici.tokens import Vocabulary


#: The kept sequences have at most as many tokens as this many texts of the greatest length.
_KEPT_TEXTS = 2


class HfEngine(BatchingEngine):
    """Generates text with a Transformers model under the control of a runtime's controllers.

    Use it from one thread. If there is a runtime, the engine registers the model's vocabulary with it. The
    caller closes the runtime.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        runtime: Runtime | None = None,
        *,
        vocabulary: Vocabulary | None = None,
        keep: int = 0,
        cache_tokens: int | Literal["auto"] | None = None,
        second: Mapping[str, tuple[Any, Vocabulary]] | None = None,
    ) -> None:
        """`model`: a causal language model of Transformers, on any device. `tokenizer`: its tokenizer.

        `vocabulary` overrides the vocabulary that is read from the tokenizer. With it and prompts of token
        ids, no tokenizer is needed.

        `keep`: see `BatchingEngine`. Kept sequences have memory of their own, for as many tokens as two texts
        of the greatest length have, but at most for a quarter of `cache_tokens`.

        `cache_tokens`: most tokens of the key-value cache, at least 1024; each running sequence takes as much
        room as the longest. "auto" means as many as a share of the free memory holds; None means no limit.
        Requests wait until there is room for them. Sequences that end give their memory back. Models whose
        layers have states, such as Mamba, accept only "auto" and None, since their sequences do not grow.

        `second`: second models by name, each with its vocabulary, on the same device. The cache of each has
        room for as many tokens.

        Raises ValueError for a model that cannot be run (see `ModelRunner`), and VocabularyError for a
        tokenizer whose bytes are unknown, or a second model with other tokens.
        """
        runner = _checked_runner(model)
        if vocabulary is None:
            eos = getattr(model.generation_config, "eos_token_id", None)
            vocabulary = load_vocabulary(tokenizer, vocab_size=runner.num_logits, eos=eos)
        keep_tokens = _KEPT_TEXTS * runner.max_tokens
        if isinstance(runner, RecurrentRunner):
            budget = Budget(None, uniform=False, most_sequences=runner.most_sequences(cache_tokens))
        else:
            cache = runner.cache
            cache.limit = cache_limit(cache_tokens, runner.device, cache.token_bytes)
            budget = Budget(cache.limit, uniform=True)
            if cache.limit is not None:
                keep_tokens = min(keep_tokens, cache.limit // 4)
        others = {name: (_checked_runner(each), known) for name, (each, known) in (second or {}).items()}
        for name, (other, _) in others.items():
            if other.device != runner.device:
                raise ValueError(f"the second model {name!r} is on {other.device}, not on {runner.device}")
            if isinstance(other, ModelRunner):
                other.cache.limit = budget.limit
        super().__init__(
            runner,
            vocabulary,
            tokenizer,
            runtime,
            keep=keep,
            budget=budget,
            keep_tokens=keep_tokens,
            second=others,
        )


def _checked_runner(model: Any) -> ModelRunner | RecurrentRunner:
    runner = RecurrentRunner(model) if keeps_states(model) else ModelRunner(model)
    check_model(model, runner)
    return runner


#: The least cosine between the centred logits of ragged passes and of a plain pass. Half precision gives
#: above 0.99; a model that ignores positions or masks gives well below.
MIN_COSINE = 0.97


def cosine(got: LogitsRow, want: LogitsRow) -> float:
    """Returns the cosine between two lines of logits, each centred."""
    one, other = torch.as_tensor(got).float(), torch.as_tensor(want).float()
    return torch.cosine_similarity(one - one.mean(), other - other.mean(), dim=0).item()


@torch.no_grad()
def check_model(model: Any, runner: ModelRunner | RecurrentRunner) -> None:
    """Checks that the model supports ragged rows.

    Feeds two rows of different lengths in two steps, and compares the logits with those of plain passes over
    each row. Takes four short passes. Raises ValueError if the logits differ.
    """
    vocab = runner.num_logits
    long = [(7 * i + 3) % vocab for i in range(9)]
    short = [(5 * i + 1) % vocab for i in range(4)]
    slots = [runner.cache.new_slot(), runner.cache.new_slot()]
    runner.run([Feed(slots[0], long[:7]), Feed(slots[1], short[:1])])
    ragged = runner.run([Feed(slots[0], long[7:]), Feed(slots[1], short[1:])])
    for slot in slots:
        runner.cache.free(slot)
    for tokens, line in zip((long, short), ragged, strict=True):
        ids = torch.tensor([tokens], device=runner.device)
        similarity = cosine(line, model(input_ids=ids, use_cache=False).logits[0, -1])
        if not similarity >= MIN_COSINE:
            raise ValueError(
                f"{type(model).__name__} computes wrong logits for rows of different lengths (cosine "
                f"similarity {similarity:.3f}): it ignores the given masks or positions, so it is not "
                "supported"
            )
