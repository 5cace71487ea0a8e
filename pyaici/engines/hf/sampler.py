"""Samples tokens under rows: masks and biases, temperature, top-k, top-p, log-probabilities."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from aicirt.contract.abi import RowKind
from aicirt.contract.errors import EmptyMaskError
from pyaici.client.masks import apply_masks
from pyaici.client.results import Row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


#: number of bins that tokens are sorted into by logit
_BINS = 1024
#: exp(-x) is 0 in float32 from this value on
_NEGLIGIBLE = 104.0
#: least range of logits that the bins cover; the bins cannot separate logits that are much closer
_LEAST_SPAN = 1e-6


class Ranks:
    """Tokens ranked by logit; finds where a count or a sum of probabilities is reached. Ties rank by id.

    Tokens are put into bins by logit, and only the relevant bin is sorted. This takes a fifth of the time of
    sorting a vocabulary, and no more than sorting if all logits are nearly equal.
    """

    def __init__(self, logits: NDArray[np.float32]) -> None:
        """`logits`: float32 [N]; at least one is not -inf."""
        self._logits = logits
        below = logits.max() - logits
        #: unnormalized probabilities: 1 for the most likely token
        self._weights = np.exp(-below)
        span = float(np.max(below, where=below < _NEGLIGIBLE, initial=_LEAST_SPAN))
        below *= (_BINS - 1) / span
        self._bins = np.minimum(below, _BINS - 1, out=below).astype(np.int32)
        self._masses = np.bincount(self._bins, self._weights, _BINS)
        self._cumulated = self._masses.cumsum()

    def draw(self, top_k: int, top_p: float, uniform: float) -> int:
        """Returns the token that `uniform` in [0, 1) falls on, among those that top-k and then top-p keep.

        Each keeps at least one token. `top_k`: 0 = all.
        """
        whole = float(self._cumulated[-1])
        if 0 < top_k < len(self._logits):
            whole = self._mass_of(top_k)
        kept = whole
        if top_p < 1:
            kept = min(whole, self._at(top_p * whole, "left")[1])
        return self._at(min(uniform * kept, math.nextafter(kept, 0)), "right")[0]

    def _mass_of(self, count: int) -> float:
        """Returns the unnormalized probability of the first `count` tokens together."""
        counts = np.bincount(self._bins, minlength=_BINS).cumsum()
        number = int(np.searchsorted(counts, count))
        tokens = self._sorted(number)
        more = count - (int(counts[number]) - len(tokens))
        before = float(self._cumulated[number - 1]) if number else 0.0
        return before + float(self._weights[tokens[:more]].sum(dtype=np.float64))

    def _at(self, mass: float, side: Literal["left", "right"]) -> tuple[int, float]:
        """Returns the first token at which the sum reaches `mass` (left) or exceeds it (right).

        Returns (token, sum including it).
        """
        number = int(np.searchsorted(self._cumulated, mass, side))
        # sums of the same weights differ in the last bits, so a sum may be reached a little later
        number = min(number, int(self._masses.nonzero()[0][-1]))
        tokens = self._sorted(number)
        weights = self._weights[tokens]
        tokens = tokens[weights > 0]
        before = float(self._cumulated[number - 1]) if number else 0.0
        sums = before + weights[weights > 0].cumsum(dtype=np.float64)
        place = min(int(np.searchsorted(sums, mass, side)), len(sums) - 1)
        return int(tokens[place]), float(sums[place])

    def _sorted(self, number: int) -> NDArray[np.intp]:
        """Returns the tokens of a bin by rank."""
        (tokens,) = (self._bins == number).nonzero()
        ranked: NDArray[np.intp] = tokens[np.argsort(-self._logits[tokens], kind="stable")]
        return ranked


#: The number of most likely tokens that top-p looks at first on a GPU. Sorting a whole vocabulary takes long,
#: and the most likely few hundred nearly always have the requested probability.
TOP_P_FIRST = 256
#: Columns whose probabilities a draw sums up at a time.
_BLOCK = 64
#: Lower temperatures count as 0.
GREEDY_BELOW = 1e-6


@dataclass(slots=True)
class Choice:
    """Options for choosing one sequence's token."""

    temperature: float
    top_p: float
    top_k: int
    #: used if the temperature is above 0; a choice draws one number
    generator: torch.Generator | None
    row: Row | None = None
    #: also compute the log-probability and the allowed mass
    measure: bool = False
    #: how many most likely tokens to list
    list_top: int = 0

    @property
    def greedy(self) -> bool:
        """Whether to take the most likely token.

        At lower temperatures the scaled logits may be infinite in float32, and the best token has all the
        probability anyway.
        """
        return self.temperature < GREEDY_BELOW

    @property
    def work(self) -> int:
        """The approximate cost on a CPU, in units of one pass over all tokens of the vocabulary."""
        drawn = 0 if self.greedy else 20 if self.top_p < 1 or self.top_k > 0 else 8
        return 1 + drawn + 8 * self.measured + 8 * (self.list_top > 0)

    @property
    def measured(self) -> bool:
        return self.measure or self.list_top > 0


@dataclass(slots=True)
class Chosen:
    """A chosen token; `token` is -1 if no token may be chosen.

    The other fields are nan or None unless requested. They describe the distribution before masking, at the
    temperature of the choice, or at 1 if that is 0.
    """

    token: int
    logprob: float = float("nan")
    allowed_mass: float = float("nan")
    top: list[tuple[int, float]] | None = None


@torch.no_grad()
def mask(logits: torch.Tensor, choices: Sequence[Choice], vocab_size: int) -> torch.Tensor | None:
    """Applies the rows of `choices` to `logits`, float32 [B, N], in place.

    Ids from `vocab_size` on are no tokens. Returns a copy of the lines to measure as they were before the
    rows, in the same order, or None if there are none.
    """
    if vocab_size < logits.shape[1]:
        logits[:, vocab_size:] = float("-inf")
    rows = [choice.row for choice in choices]
    measured = [i for i, choice in enumerate(choices) if choice.measured]
    plain: torch.Tensor | None = None
    if measured:
        plain = logits.clone() if len(measured) == len(choices) else logits[measured]
    apply_masks(logits, rows)
    return plain


@torch.no_grad()
def choose(masked: torch.Tensor, plain: torch.Tensor | None, choices: Sequence[Choice]) -> list[Chosen]:
    """Chooses one token for each line of the masked logits. `plain`: the result of `mask`.

    Temperature is applied after masks and biases, then top-k, then top-p. Line i depends only on
    ``choices[i]`` and its own logits.
    """
    chosen = [Chosen(token) for token in _pick(masked, choices)]
    if plain is not None:
        _measure(plain, masked, choices, chosen)
    return chosen


def empty_mask_error() -> EmptyMaskError:
    """Returns the error for a sequence that has no token to choose."""
    return EmptyMaskError(
        "no token can be sampled: the row forbids every token that the model has "
        "(or the model's logits are not numbers)"
    )


def _pick(logits: torch.Tensor, choices: Sequence[Choice]) -> list[int]:
    """Returns a token for each line of the masked logits; -1 where all are forbidden."""
    tokens, values = _best(logits)
    # an infinite logit has all the probability
    drawn = [i for i, c in enumerate(choices) if not c.greedy and tokens[i] >= 0 and values[i] < math.inf]
    if not drawn:
        return tokens
    scale = torch.tensor([choices[i].temperature for i in drawn], device=logits.device)[:, None]
    scaled = (logits[drawn] if len(drawn) < len(choices) else logits) / scale
    uniform = torch.tensor(
        [torch.rand((), generator=choices[i].generator, dtype=torch.float64).item() for i in drawn],
        dtype=torch.float64,
        device=logits.device,
    )
    filtered = [at for at, i in enumerate(drawn) if choices[i].top_p < 1 or choices[i].top_k > 0]
    free = [at for at in range(len(drawn)) if at not in set(filtered)]
    if free:
        probabilities = torch.softmax(scaled[free], dim=1)
        for at, token in zip(free, _draw(probabilities, uniform[free]).tolist(), strict=True):
            tokens[drawn[at]] = token
    if filtered:
        picked = _draw_filtered(scaled[filtered], [choices[drawn[at]] for at in filtered], uniform[filtered])
        for at, token in zip(filtered, picked.tolist(), strict=True):
            tokens[drawn[at]] = token
    return tokens


def _best(logits: torch.Tensor) -> tuple[list[int], list[float]]:
    """Returns the most likely token of each line, -1 if its logit is -inf or NaN, and that logit."""
    if logits.device.type == "cpu":  # numpy takes a tenth of torch's time
        lines = logits.numpy()
        places = lines.argmax(axis=1)
        values = lines[range(len(places)), places].tolist()
    else:
        largest, at = logits.max(dim=1)
        places, values = at, largest.tolist()
    return [t if v > -math.inf else -1 for t, v in zip(places.tolist(), values, strict=True)], values


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


def _draw_filtered(scaled: torch.Tensor, choices: list[Choice], uniform: torch.Tensor) -> torch.Tensor:
    """Draws under top-k and top-p. Each keeps at least one token."""
    if scaled.device.type != "cpu":
        return _draw_sorted(scaled, choices, uniform)
    # sorting one line would delay the step of all sequences by milliseconds
    numbers = uniform.tolist()
    drawn = [
        Ranks(line).draw(choice.top_k, choice.top_p, number)
        for line, choice, number in zip(scaled.numpy(), choices, numbers, strict=True)
    ]
    return torch.tensor(drawn)


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


def _measure_line(
    plain: NDArray[np.float32], masked: NDArray[np.float32], choice: Choice, chosen: Chosen
) -> None:
    """Does the work of `_measure` for one line on a CPU. Overwrites `plain`.

    Numpy takes half of torch's time, and no memory besides `plain`. After a forward pass neither code nor
    data are in the processor's caches, so the time depends mainly on the number of operations.
    """
    if not choice.greedy:
        np.divide(plain, choice.temperature, out=plain)
    value, largest = float(plain[chosen.token]), float(plain.max())
    best = torch.from_numpy(plain).topk(min(choice.list_top, len(plain))) if choice.list_top else None
    np.subtract(plain, largest, out=plain)
    total = float(np.exp(plain, out=plain).sum())
    norm = largest + math.log(total)
    chosen.logprob = value - norm
    if choice.row is None or choice.row.kind == RowKind.ALL:
        chosen.allowed_mass = 1.0
    else:
        chosen.allowed_mass = min(1.0, float(plain.dot(masked > -math.inf)) / total)
    if best is not None:
        tops = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        chosen.top = [(token, top - norm) for token, top in tops]


def _measure(
    plain: torch.Tensor, masked: torch.Tensor, choices: Sequence[Choice], chosen: list[Chosen]
) -> None:
    """Fills in log-probability, allowed mass and most likely tokens of measured lines. Overwrites `plain`."""
    lines = [i for i, choice in enumerate(choices) if choice.measured]
    if plain.device.type == "cpu":
        for line, i in zip(plain.numpy(), lines, strict=True):
            if chosen[i].token >= 0:
                _measure_line(line, masked[i].numpy(), choices[i], chosen[i])
        return
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
