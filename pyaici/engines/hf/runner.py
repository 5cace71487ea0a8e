"""Runs the model on ragged batches, with attention masks for each kind of layer, in chunks."""

from __future__ import annotations

import inspect
import time
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from pyaici.engines.batching.model import CHUNK_TOKENS, Feed, LogitsRow, Sampler, Slot, moving_average
from pyaici.engines.batching.sampler import NumpySampler
from pyaici.engines.hf.cache import SlotCache
from pyaici.engines.hf.device_sampler import DeviceSampler

if TYPE_CHECKING:
    from collections.abc import Sequence


#: layer types of the library whose attention is a mask over earlier positions
_WINDOWS = {
    "full_attention": None,
    "sliding_attention": "sliding_window",
    "chunked_attention": "attention_chunk_size",
}


class AttentionMasks:
    """Builds the `attention_mask` argument of a model's forward pass."""

    def __init__(self, config: Any) -> None:
        """`config`: the model's. Raises ValueError if a mask cannot describe the model's attention."""
        text = config.get_text_config()
        self._additive = text._attn_implementation == "eager"
        if text._attn_implementation not in ("sdpa", "eager"):
            raise ValueError(
                f"the attention implementation {text._attn_implementation!r} does not support custom masks; "
                'load the model with attn_implementation="sdpa"'
            )
        types = getattr(text, "layer_types", None)
        self._by_type = types is not None
        if types is None and getattr(text, "sliding_window", None) is not None:
            types = ["sliding_attention"]
        elif types is None and getattr(text, "attention_chunk_size", None) is not None:
            types = ["chunked_attention"]
        self._types = sorted(set(types or ["full_attention"]))
        unknown = [kind for kind in self._types if kind not in _WINDOWS]
        if unknown:
            raise ValueError(
                f"the model has {', '.join(unknown)} layers, whose state cannot be truncated or "
                "copied per row; only models with full, sliding or chunked attention are supported"
            )
        self._sizes = {kind: self._size(text, kind) for kind in self._types}

    @staticmethod
    def _size(text: Any, kind: str) -> int | None:
        attribute = _WINDOWS[kind]
        return None if attribute is None else getattr(text, attribute)

    def build(self, positions: torch.Tensor, num_keys: int, dtype: torch.dtype) -> Any:
        """Returns the mask for queries at `positions` (int64 [B, Q]) over keys 0..num_keys-1 of each row.

        A mask is bool [B, 1, Q, K], where true means visible. For eager attention it is additive, in `dtype`.
        If the model's configuration lists layer types, returns a dict of masks by layer type.
        """
        masks = {kind: self._build_mask(positions, num_keys, dtype, kind) for kind in self._types}
        return masks if self._by_type else masks[self._types[0]]

    def _build_mask(
        self, positions: torch.Tensor, num_keys: int, dtype: torch.dtype, kind: str
    ) -> torch.Tensor:
        query = positions[:, None, :, None]
        key = torch.arange(num_keys, device=positions.device)
        seen = key <= query
        size = self._sizes[kind]
        if size is not None:
            seen &= (key > query - size) if kind == "sliding_attention" else (key // size == query // size)
        if not self._additive:
            return seen
        hidden = torch.finfo(dtype).min
        return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, hidden)


T = TypeVar("T")

#: The fixed cost of a forward pass, in tokens. SmolLM2-135M on one CPU thread takes about 30 ms per pass and
#: 2.5 ms per token; a GPU reads all weights in the time of a few hundred tokens.
PASS_COST = {"cpu": 12, "cuda": 256}


def split(rows: Sequence[tuple[T, int]], pass_cost: int) -> list[list[T]]:
    """Groups rows into passes. Each row comes with its number of new tokens.

    The queries of a pass are padded to the longest. A row joins the group of the next shorter rows if the
    added padding costs no more than a separate pass, which is `pass_cost` tokens.
    """
    groups: list[list[T]] = []
    width = 0
    for row, count in sorted(rows, key=lambda item: item[1]):
        if groups and len(groups[-1]) * (count - width) <= pass_cost:
            groups[-1].append(row)
        else:
            groups.append([row])
        width = count
    return groups


class HfRunner:
    """A causal language model of the library."""

    def __init__(self, model: Any) -> None:
        text = model.config.get_text_config()
        self._model = model.eval()
        self._last_only = "logits_to_keep" in inspect.signature(model.forward).parameters
        self.device: torch.device = model.device
        #: the fixed cost of a forward pass, in tokens
        self.pass_cost = PASS_COST.get(self.device.type, PASS_COST["cuda"])
        self._on_cpu = self.device.type == "cpu"
        self.sampler: Sampler = NumpySampler() if self._on_cpu else DeviceSampler()
        #: see `Runner`; measured on a CPU only: a GPU is still working when a pass returns
        self.token_seconds = 0.0
        #: the model accepts token ids below this
        self.num_tokens: int = model.get_input_embeddings().weight.shape[0]
        #: columns of the logits; a model may have more than its tokenizer has tokens
        head = model.get_output_embeddings()
        self.num_logits: int = text.vocab_size if head is None else head.weight.shape[0]
        #: largest number of tokens of one sequence
        self.max_tokens: int = getattr(text, "max_position_embeddings", None) or 1 << 30


class ModelRunner(HfRunner):
    """A causal language model of the library together with a `SlotCache` for it."""

    def __init__(self, model: Any) -> None:
        """Raises ValueError if models of this kind cannot be run with ragged rows."""
        super().__init__(model)
        self._masks = AttentionMasks(model.config)
        self.cache = SlotCache(model.config.get_text_config().num_hidden_layers)

    @torch.no_grad()
    def run(self, feeds: Sequence[Feed]) -> list[LogitsRow]:
        """Appends each feed's tokens to its slot. Returns the logits after each feed's last token.

        Feeds share a pass if the padding costs less than separate passes; long feeds are cut into chunks. The
        result has one float32 [num_logits] per feed, in the order of `feeds`: numpy arrays if the model
        is on a CPU, else tensors on its device. A feed with `every` has a list of them, one for each token.
        """
        logits: dict[int, LogitsRow] = {}
        todo = [(feed, 0) for feed in feeds]
        while todo:
            chunks = [(item, min(CHUNK_TOKENS, len(item[0].tokens) - item[1])) for item in todo]
            todo = []
            for group in split(chunks, self.pass_cost):
                self.cache.gather([feed.slot for feed, _ in group])
                group.sort(key=lambda item: item[0].slot.index)
                parts = [feed.tokens[start : start + CHUNK_TOKENS] for feed, start in group]
                rows = self._pass([feed.slot for feed, _ in group], parts, [feed.every for feed, _ in group])
                for (feed, start), part, row in zip(group, parts, rows, strict=True):
                    if start + len(part) < len(feed.tokens):
                        todo.append((feed, start + len(part)))
                    else:
                        logits[id(feed)] = row
        return [logits[id(feed)] for feed in feeds]

    def _pass(self, slots: list[Slot], parts: list[Sequence[int]], every: list[bool]) -> list[LogitsRow]:
        """Runs a pass with queries padded on the left. Returns the logits after the last token of each row.

        `every`: rows for which it returns a list of the logits after each token. The logits are float32.
        """
        begun = time.thread_time()  # beside other work it is the same
        counts = [len(part) for part in parts]
        width = max(counts)
        ids = [[0] * (width - count) + list(part) for part, count in zip(parts, counts, strict=True)]
        kept = max([1, *(count for count, whole in zip(counts, every, strict=True) if whole)])
        place = self.cache.place_rows(slots, counts, self.device)
        ends = torch.tensor([slot.length + count for slot, count in zip(slots, counts, strict=True)])
        # padding gets the positions before the row's own; negative ones would be out of the tables' range
        positions = (ends[:, None] + torch.arange(-width, 0)).clamp_(min=0).to(self.device)
        self.cache.placement = place
        try:
            output = self._model(
                input_ids=torch.tensor(ids, device=self.device),
                attention_mask=self._masks.build(positions, place.num_keys, self._model.dtype),
                position_ids=positions,
                past_key_values=self.cache,
                use_cache=True,
                **({"logits_to_keep": kept} if self._last_only else {}),
            )
        finally:
            self.cache.placement = None
        for slot, count in zip(slots, counts, strict=True):
            slot.length += count
        logits: torch.Tensor = output.logits[:, -kept:].float()
        if self._on_cpu:
            each = (time.thread_time() - begun) / (self.pass_cost + len(parts) * width)
            self.token_seconds = moving_average(self.token_seconds, each)
        lines: LogitsRow = logits.detach().numpy() if self._on_cpu else logits
        return [
            list(row[-count:]) if whole else row[-1]
            for row, count, whole in zip(lines, counts, every, strict=True)
        ]
