"""Tries out whether a model respects ragged rows before anything is generated with it.

A model that ignores the mask or the positions it is given would not fail: it would write nonsense.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from pyaici.engines.hf.runner import ModelRunner

#: Least cosine between centred logits of ragged passes and of a plain one. Half precision gives
#: above 0.99, a model that ignores positions or masks well below.
MIN_COSINE = 0.97


@torch.no_grad()
def check_model(model: Any, runner: ModelRunner) -> None:
    """Feeds two rows of different lengths in two steps and compares them with a pass over the whole.

    Costs four short passes. Raises ValueError if the logits differ.
    """
    from pyaici.engines.hf.runner import Feed

    vocab = runner.num_logits
    long = [(7 * i + 3) % vocab for i in range(9)]
    short = [(5 * i + 1) % vocab for i in range(4)]
    slots = [runner.cache.new_slot(), runner.cache.new_slot()]
    runner.run([Feed(slots[0], long[:7]), Feed(slots[1], short[:1])])
    ragged = runner.run([Feed(slots[0], long[7:]), Feed(slots[1], short[1:])])
    for slot in slots:
        runner.cache.free(slot)
    for tokens, got in zip((long, short), ragged, strict=True):
        ids = torch.tensor([tokens], device=runner.device)
        want = model(input_ids=ids, use_cache=False).logits[0, -1].float()
        cosine = torch.cosine_similarity(got - got.mean(), want - want.mean(), dim=0).item()
        if not cosine >= MIN_COSINE:
            raise ValueError(
                f"{type(model).__name__} computes something else when its rows have different lengths "
                f"(cosine {cosine:.3f} of the logits): it does not follow given masks and positions"
            )
