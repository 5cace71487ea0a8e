"""Options that leave out tokens: numpy, torch and Transformers against a definition in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from transformers import LogitsProcessor, TypicalLogitsWarper
from transformers.generation import MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from aicirt.contract.messages import Truncation
from pyaici.client.masks import truncate
from pyaici.engines.batching.sampler import Choice
from tests.pyaici.engines.batching.test_sampler import Fixed, Pick, pick_with_numpy, pick_with_torch

#: a share of a sum, or a difference of logits, that rounding in float32 may decide
_CLOSE = 1e-4
#: draws of one distribution
_GRID = 60


def kept_by_definition(logits: NDArray[np.float64], temperature: float, options: Truncation) -> set[int]:
    """Returns the tokens that docs/abi.md says are kept, by brute force in float64.

    Raises UnsatisfiedAssumption if rounding could decide.
    """

    def take(tokens: list[int], weight: Callable[[int], float], share: float) -> list[int]:
        whole, found, total = sum(map(weight, tokens)), [], 0.0
        for token in tokens:
            assume(share >= 1 or abs(total / whole - share) > _CLOSE)
            if total >= share * whole and share < 1:
                break
            found.append(token)
            total += weight(token)
        return found

    kept = [token for token in range(len(logits)) if logits[token] > -math.inf]
    best = max(logits[token] for token in kept)
    if options.top_n_sigma:
        least = best - options.top_n_sigma * float(np.std(logits[kept]))
        assume(all(abs(logits[token] - least) > _CLOSE for token in kept))
        kept = [token for token in kept if logits[token] >= least]
    weights = [math.exp((logit - best) / temperature) for logit in logits]
    if options.min_p:
        assume(all(abs(weights[it] / options.min_p - 1) > _CLOSE for it in kept if logits[it] < best))
        kept = [token for token in kept if weights[token] >= options.min_p]
    kept.sort(key=lambda token: -logits[token])
    kept = kept[: options.top_k or None]
    if options.typical_p:
        whole = sum(weights[token] for token in kept)
        surprise = {token: -math.log(weights[token] / whole) for token in kept}
        entropy = sum(weights[token] / whole * surprise[token] for token in kept)
        far = {token: abs(surprise[token] - entropy) for token in kept}
        near = sorted(kept, key=far.__getitem__)
        assume(all(far[b] - far[a] > _CLOSE for a, b in pairwise(near)))
        typical = take(near, weights.__getitem__, options.typical_p)
        kept = [token for token in kept if token in typical]
    return set(take(kept, weights.__getitem__, options.top_p or 1.0))


def drawn(pick: Pick, logits: NDArray[np.float32], temperature: float, options: Truncation) -> set[int]:
    """Returns the tokens on which some number of a fine grid falls."""
    grid = np.linspace(0, math.nextafter(1, 0), _GRID)
    numbers = options._asdict()
    numbers = {
        name: value or Choice(1, 1, 0, None).truncation._asdict()[name] for name, value in numbers.items()
    }
    choices = [Choice(temperature, generator=Fixed(float(number)), **numbers) for number in grid]
    return {chosen.token for chosen in pick(np.tile(logits, (len(grid), 1)), choices)}


def kept_by(logits: NDArray[np.float32], temperature: float, options: Truncation) -> set[int]:
    lines = torch.from_numpy(np.tile(logits / np.float32(temperature), (2, 1)))
    truncate(lines, [Truncation(), options])
    assert (lines[0] == torch.from_numpy(logits) / temperature).all(), "nothing is left out without options"
    return set(np.flatnonzero(lines[1].numpy() > -math.inf).tolist())


LOGITS = st.lists(
    st.one_of(st.floats(-4, 4, width=32), st.just(-math.inf)), min_size=1, max_size=12, unique=True
).filter(lambda logits: max(logits) > -math.inf)
SHARE = st.sampled_from([0.0, 0.05, 0.2, 0.35, 0.5, 0.7, 0.9, 1.0])
OPTIONS = st.builds(
    Truncation,
    top_p=SHARE,
    top_k=st.sampled_from([0, 0, 1, 2, 5, 100, 0xFFFFFFFF]),
    min_p=st.sampled_from([0.0, 0.0, 1e-30, 0.05, 0.3, 1.0]),
    typical_p=SHARE,
    top_n_sigma=st.sampled_from([0.0, 0.0, 0.4, 1.0, 2.5, 1e30]),
)


# the deviation is that of all allowed tokens, also of those that min_p leaves out
@example([0.0, 0.125, -1.0], 0.4, Truncation(top_p=0.9, top_k=100, min_p=0.3, typical_p=1.0, top_n_sigma=0.4))
@settings(deadline=None)
@given(LOGITS, st.sampled_from([0.4, 1.0, 2.5]), OPTIONS)
def test_all_backends_keep_what_the_definition_says(
    given_logits: list[float], temperature: float, options: Truncation
) -> None:
    logits = np.array(given_logits, np.float32)
    want = kept_by_definition(logits.astype(np.float64), temperature, options)
    assert kept_by(logits, temperature, options) == want
    # a grid may miss a token of little probability
    best = max(logits[token] for token in want)
    weights = {token: math.exp((logits[token] - best) / temperature) for token in want}
    likely = {token for token in want if weights[token] > 2 / _GRID * sum(weights.values())}
    for pick in (pick_with_numpy, pick_with_torch):
        assert likely <= drawn(pick, logits, temperature, options) <= want


@pytest.mark.parametrize(
    ("options", "warper"),
    [
        (Truncation(top_p=0.8), TopPLogitsWarper(0.8)),
        (Truncation(top_k=7), TopKLogitsWarper(7)),
        (Truncation(min_p=0.1), MinPLogitsWarper(0.1)),
        (Truncation(typical_p=0.6), TypicalLogitsWarper(0.6)),
        (Truncation(typical_p=0.95), TypicalLogitsWarper(0.95)),
    ],
    ids=["top_p", "top_k", "min_p", "typical_p", "typical_p of most"],
)
def test_transformers_keeps_the_same_tokens(options: Truncation, warper: LogitsProcessor) -> None:
    generator = torch.Generator().manual_seed(7)
    lines = torch.randn(50, 1000, generator=generator) * torch.linspace(0.1, 6, 50)[:, None]
    theirs = warper(torch.zeros(50, 1, dtype=torch.long), lines.clone())
    truncate(lines, [options] * len(lines))
    # of sums in float32, one token at the edge may differ
    different = ((lines > -math.inf) != (theirs > -math.inf)).sum(dim=1)
    assert int(different.max()) <= 1 and int((different > 0).sum()) <= 2


def test_top_n_sigma_does_not_depend_on_the_temperature_and_counts_allowed_tokens() -> None:
    line = np.random.default_rng(4).normal(0, 2, 500).astype(np.float32)
    line[100:] = -math.inf
    allowed = line[:100].astype(np.float64)
    want = set(np.flatnonzero(allowed >= allowed.max() - 1.3 * allowed.std()).tolist())
    for temperature in (0.3, 1.0, 7.0):
        assert kept_by(line, temperature, Truncation(top_n_sigma=1.3)) == want
