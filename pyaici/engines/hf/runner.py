"""Runs the model: tokens that the cache lacks go in, logits of the last ones come out."""

from __future__ import annotations

import inspect
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from pyaici.engines.hf.attention import AttentionMasks
from pyaici.engines.hf.cache import Slot, SlotCache
from pyaici.engines.hf.passes import PASS_COST, split

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Most tokens of one row in one pass: bounds the memory of attention scores in a long prompt.
CHUNK_TOKENS = 512
#: how much the last pass counts in what is known of the time of passes
_NEWS = 0.1


@dataclass(frozen=True, eq=False, slots=True)
class Feed:
    """Tokens to be appended to one slot."""

    slot: Slot
    tokens: Sequence[int]


class ModelRunner:
    """A causal language model of the library together with a `SlotCache` for it."""

    def __init__(self, model: Any) -> None:
        """Raises ValueError if the model is of a kind that cannot be run with ragged rows."""
        text = model.config.get_text_config()
        self._model = model.eval()
        self._masks = AttentionMasks(model.config)
        self._last_only = "logits_to_keep" in inspect.signature(model.forward).parameters
        self.device: torch.device = model.device
        #: what one more forward pass costs, in tokens
        self.pass_cost = PASS_COST.get(self.device.type, PASS_COST["cuda"])
        self.cache = SlotCache(text.num_hidden_layers)
        #: what a token of a pass takes, lately; the pass itself counts as `pass_cost` tokens. On a CPU only:
        #: a GPU has not done its work when a pass returns
        self.token_seconds = 0.0
        #: ids that can be fed
        self.num_tokens: int = model.get_input_embeddings().weight.shape[0]
        #: columns of the logits; a model may have more than its tokenizer has tokens
        head = model.get_output_embeddings()
        self.num_logits: int = text.vocab_size if head is None else head.weight.shape[0]
        #: largest number of tokens of one sequence
        self.max_tokens: int = getattr(text, "max_position_embeddings", None) or 1 << 30

    @torch.no_grad()
    def run(self, feeds: Sequence[Feed]) -> list[torch.Tensor]:
        """Appends each feed's tokens to its slot; returns the logits after its last token.

        One pass takes every feed whose padding is worth it, and long feeds are cut into chunks.
        The result has one float32 [num_logits] per feed, in the order of `feeds`.
        """
        logits: dict[int, torch.Tensor] = {}
        todo = [(feed, 0) for feed in feeds]
        while todo:
            chunks = [(item, min(CHUNK_TOKENS, len(item[0].tokens) - item[1])) for item in todo]
            todo = []
            for group in split(chunks, self.pass_cost):
                self.cache.gather([feed.slot for feed, _ in group])
                group.sort(key=lambda item: item[0].slot.index)
                parts = [feed.tokens[start : start + CHUNK_TOKENS] for feed, start in group]
                rows = self._pass([feed.slot for feed, _ in group], parts)
                for (feed, start), part, row in zip(group, parts, rows, strict=True):
                    if start + len(part) < len(feed.tokens):
                        todo.append((feed, start + len(part)))
                    else:
                        logits[id(feed)] = row
        return [logits[id(feed)] for feed in feeds]

    def _pass(self, slots: list[Slot], parts: list[Sequence[int]]) -> torch.Tensor:
        """One forward pass, queries padded on the left: float32 [B, num_logits] of the last column."""
        begun = time.perf_counter()
        counts = [len(part) for part in parts]
        width = max(counts)
        ids = [[0] * (width - count) + list(part) for part, count in zip(parts, counts, strict=True)]
        place = self.cache.place(slots, counts, self.device)
        ends = torch.tensor([slot.length + count for slot, count in zip(slots, counts, strict=True)])
        # padding gets the positions before the row's own; negative ones would index out of the tables
        positions = (ends[:, None] + torch.arange(-width, 0)).clamp_(min=0).to(self.device)
        self.cache.placement = place
        try:
            output = self._model(
                input_ids=torch.tensor(ids, device=self.device),
                attention_mask=self._masks.build(positions, place.num_keys, self._model.dtype),
                position_ids=positions,
                past_key_values=self.cache,
                use_cache=True,
                **({"logits_to_keep": 1} if self._last_only else {}),
            )
        finally:
            self.cache.placement = None
        for slot, count in zip(slots, counts, strict=True):
            slot.length += count
        logits: torch.Tensor = output.logits[:, -1].float()
        if self.device.type == "cpu":
            each = (time.perf_counter() - begun) / (self.pass_cost + len(parts) * width)
            self.token_seconds += (each - self.token_seconds) * (_NEWS if self.token_seconds else 1)
        return logits
