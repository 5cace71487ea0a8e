"""Samples tokens from logits on a device: one pass of torch's kernels for a whole batch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from aicirt.contract.abi import RowKind
from pyaici.client.masks import apply_masks, truncate
from pyaici.engines.batching.sampler import Choice, Chosen
from pyaici.engines.sampling import HOTTEST

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

#: The number of most likely tokens that top-p looks at first on a GPU. Sorting a whole vocabulary takes long,
#: and the most likely few hundred nearly always have the requested probability.
TOP_P_FIRST = 256
#: Columns whose probabilities a draw sums up at a time.
_BLOCK = 64


class DeviceSampler:
    """Chooses tokens from float32 logits on any device; see `pyaici.engines.batching.model.Sampler`."""

    def stack(self, lines: Sequence[torch.Tensor]) -> torch.Tensor:
        """See `Sampler.stack`."""
        return torch.stack(list(lines))

    @torch.no_grad()
    def mask(self, batch: torch.Tensor, choices: Sequence[Choice], vocab_size: int) -> torch.Tensor | None:
        """See `Sampler.mask`."""
        batch[:, vocab_size:] = float("-inf")
        measured = [i for i, choice in enumerate(choices) if choice.measured]
        plain = batch[measured] if measured else None
        for line, choice in zip(batch, choices, strict=True):
            if choice.changes is not None:
                changes = choice.changes.within(vocab_size)
                tokens = torch.from_numpy(changes.tokens).to(line.device)
                line[tokens] = torch.from_numpy(changes.apply(line[tokens].cpu().numpy())).to(line.device)
        apply_masks(batch, [choice.row for choice in choices])
        return plain

    @torch.no_grad()
    def choose(
        self, masked: torch.Tensor, plain: torch.Tensor | None, choices: Sequence[Choice]
    ) -> list[Chosen]:
        """See `Sampler.choose`. Overwrites `plain`."""
        chosen = [Chosen(token) for token in _pick(masked, choices)]
        if plain is not None:
            _measure(plain, masked, choices, chosen)
        return chosen

    def keep(self, line: torch.Tensor) -> torch.Tensor:
        """See `Sampler.keep`."""
        return line.clone()

    def to_numpy(self, lines: Sequence[torch.Tensor]) -> NDArray[np.float32]:
        """See `Sampler.to_numpy`."""
        copied: NDArray[np.float32] = torch.stack(list(lines)).cpu().numpy()
        return copied


def _pick(logits: torch.Tensor, choices: Sequence[Choice]) -> list[int]:
    """Returns a token for each line of the masked logits; -1 where all are forbidden."""
    largest, places = logits.max(dim=1)
    values: list[float] = largest.tolist()
    tokens = [t if v > -math.inf else -1 for t, v in zip(places.tolist(), values, strict=True)]
    # an infinite logit has all the probability
    drawn = [i for i, c in enumerate(choices) if not c.greedy and tokens[i] >= 0 and values[i] < math.inf]
    if not drawn:
        return tokens
    temperatures = [min(choices[i].temperature, HOTTEST) for i in drawn]
    # subtracts first: a large bias divided by a low temperature would be infinite
    scaled = logits[drawn] - largest[drawn, None]
    scaled /= torch.tensor(temperatures, device=logits.device)[:, None]
    cut = [at for at, i in enumerate(drawn) if choices[i].typical_p < 1 or choices[i].top_n_sigma > 0]
    if cut:
        lines = scaled[cut]
        truncate(lines, [choices[drawn[at]].truncation for at in cut])
        scaled[cut] = lines
    if any(choices[i].min_p > 0 for i in drawn):
        least = [math.log(choices[i].min_p) if choices[i].min_p > 0 else -math.inf for i in drawn]
        scaled.masked_fill_(scaled < torch.tensor(least, device=logits.device)[:, None], -math.inf)
    uniform = torch.tensor([_uniform(choices[i]) for i in drawn], dtype=torch.float64, device=logits.device)
    filtered = [
        at for at, i in enumerate(drawn) if (choices[i].top_p < 1 or choices[i].top_k > 0) and at not in cut
    ]
    free = [at for at in range(len(drawn)) if at not in set(filtered)]
    if free:
        probabilities = torch.softmax(scaled[free], dim=1)
        for at, token in zip(free, _draw(probabilities, uniform[free]).tolist(), strict=True):
            tokens[drawn[at]] = token
    if filtered:
        picked = _draw_sorted(scaled[filtered], [choices[drawn[at]] for at in filtered], uniform[filtered])
        for at, token in zip(filtered, picked.tolist(), strict=True):
            tokens[drawn[at]] = token
    return tokens


def _uniform(choice: Choice) -> float:
    assert choice.generator is not None
    return choice.generator.random()


def _allowed_mass(masked: torch.Tensor, probabilities: torch.Tensor) -> list[float]:
    """Returns the probability of all allowed tokens, for each line."""
    kept = torch.where(masked > float("-inf"), probabilities, 0.0)
    masses: list[float] = kept.sum(dim=1).clamp_(max=1.0).tolist()
    return masses


def _draw(probabilities: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """Returns, for each line, the column where the cumulated probability passes `uniform` in [0, 1).

    The column never has probability 0.
    """
    # blocks are summed in float64; summing every column so would take most of a draw's time
    whole = torch.nn.functional.pad(probabilities, (0, -probabilities.shape[1] % _BLOCK))
    grid = whole.view(len(whole), -1, _BLOCK)
    block, rest = _passed(grid.sum(dim=2, dtype=torch.float64), uniform[:, None])
    inside = grid.take_along_dim(block[:, :, None], dim=1).squeeze(1).double()
    place, _ = _passed(inside, rest)
    return (block * _BLOCK + place).squeeze(1)


def _passed(masses: torch.Tensor, uniform: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the place where the cumulated mass passes `uniform` times the total, and the rest: [B, 1] each.

    The rest is the distance to the target within that place, as a share of its mass.
    """
    cumulated = masses.cumsum(dim=1)
    total = cumulated[:, -1:]
    # rounding may lift the product to the total, which no column passes
    target = torch.minimum(uniform * total, torch.nextafter(total, torch.zeros_like(total)))
    place = torch.searchsorted(cumulated, target, right=True)
    here = masses.gather(1, place)
    return place, ((target - (cumulated.gather(1, place) - here)) / here).clamp_(min=0)


def _draw_sorted(scaled: torch.Tensor, choices: list[Choice], uniform: torch.Tensor) -> torch.Tensor:
    size = scaled.shape[1]
    width = min(size, max(TOP_P_FIRST, *(choice.top_k for choice in choices)))
    total = scaled.logsumexp(dim=1, keepdim=True)
    values = scaled.topk(width, dim=1).values
    probabilities = (values - total).exp()
    short = [
        choice.top_k == 0 and choice.top_p > covered
        for choice, covered in zip(choices, probabilities.sum(dim=1).tolist(), strict=True)
    ]
    if any(short) and width < size:
        # all tokens below this probability have less than 1 - top_p together: the others are enough
        floor = min((1 - choice.top_p) / size for choice, more in zip(choices, short, strict=True) if more)
        width = int(((scaled - total).exp_() >= floor).sum(dim=1).max())
        values = scaled.topk(max(1, width), dim=1).values
        probabilities = (values - total).exp()
    limit = torch.tensor([choice.top_k or size for choice in choices], device=scaled.device)
    rank = torch.arange(probabilities.shape[1], device=scaled.device)
    probabilities = probabilities * (rank < limit[:, None])
    top_p = torch.tensor([choice.top_p for choice in choices], device=scaled.device)[:, None]
    # top-p is a share of the mass that top-k keeps; without top-k that mass is 1, however few are listed
    whole = torch.where(limit[:, None] < size, probabilities.sum(dim=1, keepdim=True), 1.0)
    before = probabilities.cumsum(dim=1) - probabilities
    keep = (before < top_p * whole) | (rank == 0)
    rank = _draw(probabilities * keep, uniform)[:, None]
    return _place(scaled, values, rank)


def _place(lines: torch.Tensor, values: torch.Tensor, rank: torch.Tensor) -> torch.Tensor:
    """Returns the column where each line has the value of rank `rank` in `values`. Ties rank by column."""
    value = values.gather(1, rank)
    nth = rank - (values > value).sum(dim=1, keepdim=True)
    equal = lines == value
    return (equal & (equal.cumsum(dim=1) == nth + 1)).to(torch.uint8).argmax(dim=1)


def _measure(
    plain: torch.Tensor, masked: torch.Tensor, choices: Sequence[Choice], chosen: list[Chosen]
) -> None:
    """Fills in log-probability, allowed mass and most likely tokens of measured lines. Overwrites `plain`."""
    lines = [i for i, choice in enumerate(choices) if choice.measured]
    scaled = plain
    if not all(choices[i].greedy for i in lines):
        scale = [1.0 if choices[i].greedy else choices[i].temperature for i in lines]
        scaled = plain / torch.tensor(scale, device=plain.device)[:, None]
    probabilities = torch.softmax(scaled, dim=1)
    # the log of the sum of exponentials, from the softmax that is needed anyway
    norm = scaled.amax(dim=1) - probabilities.amax(dim=1).log()
    ids = torch.tensor([max(0, chosen[i].token) for i in lines], device=plain.device)
    logprobs = (scaled.gather(1, ids[:, None]).squeeze(1) - norm).tolist()
    allowed = masked[lines] if len(lines) < len(masked) else masked
    masses = _allowed_mass(allowed, probabilities)
    for at, i in enumerate(lines):
        if chosen[i].token >= 0:
            row = choices[i].row
            chosen[i].logprob = logprobs[at]
            chosen[i].allowed_mass = 1.0 if row is None or row.kind == RowKind.ALL else masses[at]
    width = min(max(choices[i].list_top for i in lines), scaled.shape[1])
    if width:
        values, tokens = (scaled - norm[:, None]).topk(width, dim=1)
        for i, best, ids_of_best in zip(lines, values.tolist(), tokens.tolist(), strict=True):
            count = choices[i].list_top
            chosen[i].top = list(zip(ids_of_best[:count], best[:count], strict=True)) if count else None
