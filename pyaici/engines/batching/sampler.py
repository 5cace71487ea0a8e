"""Samples tokens under rows: masks and biases, temperature, truncation, log-probabilities."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from aicirt.contract.abi import RowKind
from aicirt.contract.errors import EmptyMaskError
from aicirt.contract.messages import Truncation
from pyaici.client.masks import apply_masks
from pyaici.client.results import Look, Row
from pyaici.engines.sampling import HOTTEST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pyaici.engines.sampling import Changes

#: number of bins that tokens are sorted into by logit
_BINS = 1024
#: exp(-x) is 0 in float32 from this value on
_NEGLIGIBLE = 104.0
#: least range of logits that the bins cover; the bins cannot separate logits that are much closer
_MIN_SPAN = 1e-6


class Ranks:
    """Tokens ranked by logit; finds where a count or a sum of probabilities is reached. Ties rank by id.

    Tokens are put into bins by logit, and only the relevant bin is sorted. This takes a fifth of the time of
    sorting a vocabulary, and no more than sorting if all logits are nearly equal.
    """

    def __init__(self, logits: NDArray[np.float32], weights: NDArray[np.float32] | None = None) -> None:
        """`logits`: float32 [N], the order of the tokens; at least one is not -inf.

        `weights`: float32 [N], unnormalized probabilities, 0 where the logit is -inf; None: of `logits`.
        """
        self._logits = logits
        below = logits.max() - logits
        #: unnormalized probabilities: 1 for the most likely token
        self._weights = np.exp(-below) if weights is None else weights
        span = float(np.max(below, where=below < _NEGLIGIBLE, initial=_MIN_SPAN))
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

    def reach(self, share: float) -> tuple[int, float]:
        """Returns the first token at which the sum reaches this share of all, and the sum including it."""
        return self._at(share * float(self._cumulated[-1]), "left")

    def after(self, count: int) -> NDArray[np.bool_]:
        """Returns a mask [N] of the tokens that come after the first `count`."""
        number, first = self._reached(count)
        later: NDArray[np.bool_] = self._bins >= number
        later[first] = False
        return later

    def _mass_of(self, count: int) -> float:
        """Returns the unnormalized probability of the first `count` tokens together."""
        number, first = self._reached(count)
        before = float(self._cumulated[number - 1]) if number else 0.0
        return before + float(self._weights[first].sum(dtype=np.float64))

    def _reached(self, count: int) -> tuple[int, NDArray[np.intp]]:
        """Returns the bin that has the last one of `count` tokens, and its tokens up to that one."""
        counts = np.bincount(self._bins, minlength=_BINS).cumsum()
        number = int(np.searchsorted(counts, count))
        tokens = self._sorted(number)
        return number, tokens[: count - (int(counts[number]) - len(tokens))]

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
    generator: random.Random | None
    row: Row | None = None
    #: also compute the log-probability and the allowed mass
    measure: bool = False
    #: how many most likely tokens to list
    list_top: int = 0
    #: tokens below this share of the most likely token's probability are left out
    min_p: float = 0.0
    #: keep the tokens whose surprise is nearest to its mean and that together have at least this probability
    typical_p: float = 1.0
    #: keep logits up to so many standard deviations below the largest; 0 = all
    top_n_sigma: float = 0.0
    #: changes of the logits before `row`
    changes: Changes | None = None

    @property
    def greedy(self) -> bool:
        """Whether to take the most likely token.

        At lower temperatures the scaled logits may be infinite in float32, and the best token has all the
        probability anyway.
        """
        return self.temperature < GREEDY_BELOW

    @property
    def truncation(self) -> Truncation:
        """The options that leave out tokens."""
        return Truncation(self.top_p, self.top_k, self.min_p, self.typical_p, self.top_n_sigma)

    @property
    def work(self) -> int:
        """The approximate cost on a CPU, in units of one pass over all tokens of the vocabulary."""
        drawn = 0 if self.greedy else 20 if self.top_p < 1 or self.top_k > 0 else 8
        if not self.greedy:
            drawn += 30 * (self.typical_p < 1) + 5 * (self.top_n_sigma > 0)
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


class NumpySampler:
    """Chooses tokens from logits in host memory; see `pyaici.engines.batching.model.Sampler`.

    Works line by line. After a forward pass neither code nor data are in the processor's caches, so the time
    depends mainly on the number of operations.
    """

    def stack(self, lines: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
        """See `Sampler.stack`."""
        return np.stack(lines)

    def mask(
        self, batch: NDArray[np.float32], choices: Sequence[Choice], vocab_size: int
    ) -> NDArray[np.float32] | None:
        """See `Sampler.mask`."""
        batch[:, vocab_size:] = -math.inf
        measured = [i for i, choice in enumerate(choices) if choice.measured]
        plain = batch[measured] if measured else None
        for line, choice in zip(batch, choices, strict=True):
            if choice.changes is not None:
                changes = choice.changes.within(vocab_size)
                line[changes.tokens] = changes.apply(line[changes.tokens])
        apply_masks(batch, [choice.row for choice in choices])
        return plain

    def choose(
        self, masked: NDArray[np.float32], plain: NDArray[np.float32] | None, choices: Sequence[Choice]
    ) -> list[Chosen]:
        """See `Sampler.choose`. Overwrites `plain`."""
        chosen = [Chosen(_pick(line, choice)) for line, choice in zip(masked, choices, strict=True)]
        if plain is not None:
            measured = [i for i, choice in enumerate(choices) if choice.measured]
            for line, i in zip(plain, measured, strict=True):
                if chosen[i].token >= 0:
                    _measure(line, masked[i], choices[i], chosen[i])
        return chosen

    def keep(self, line: NDArray[np.float32]) -> NDArray[np.float32]:
        """See `Sampler.keep`."""
        return line.copy()

    def to_numpy(self, lines: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
        """See `Sampler.to_numpy`."""
        return np.stack(lines)


def empty_mask_error() -> EmptyMaskError:
    """Returns the error for a sequence that has no token to choose."""
    return EmptyMaskError(
        "no token can be sampled: the row forbids every token that the model has "
        "(or the model's logits are not numbers)"
    )


def _pick(masked: NDArray[np.float32], choice: Choice) -> int:
    """Returns a token for a masked line; -1 if all are forbidden or the best logit is NaN."""
    token = int(masked.argmax())
    best = float(masked[token])
    if not best > -math.inf:
        return -1
    if choice.greedy or best == math.inf:  # an infinite logit has all the probability
        return token
    assert choice.generator is not None
    uniform = choice.generator.random()
    # subtracts first: a large bias divided by a low temperature would be infinite
    with np.errstate(over="ignore"):
        scaled = masked - masked[token]
        if choice.top_n_sigma > 0:
            allowed = scaled[scaled > -math.inf].astype(np.float64)
            scaled[scaled < -choice.top_n_sigma * allowed.std()] = -math.inf
        scaled /= np.float32(min(choice.temperature, HOTTEST))
    if choice.min_p > 0:
        scaled[scaled < math.log(choice.min_p)] = -math.inf
    top_k = choice.top_k
    if choice.typical_p < 1:
        keep_first(scaled, top_k)
        keep_typical(scaled, choice.typical_p)
        top_k = 0
    if choice.top_p < 1 or top_k > 0:
        return Ranks(scaled).draw(top_k, choice.top_p, uniform)
    return _draw(np.exp(scaled, out=scaled), uniform)


def keep_first(scaled: NDArray[np.float32], count: int) -> None:
    """Sets all but the `count` largest of `scaled` [N] to -inf, in place; 0 = all. Ties rank by place."""
    if 0 < count < len(scaled):
        scaled[Ranks(scaled).after(count)] = -math.inf


def keep_typical(scaled: NDArray[np.float32], typical_p: float) -> None:
    """Leaves out tokens by locally typical sampling (arXiv:2202.00666), in place.

    `scaled`: float32 [N], logits at the sampling temperature, at most 0. Keeps the tokens whose surprise
    -log p is nearest to the entropy, its mean, until they together have the probability `typical_p`.
    """
    weights = np.exp(scaled)
    possible = weights > 0
    # the normalization of p cancels out in the difference between the surprise and its mean
    mean = np.average(scaled[possible].astype(np.float64), weights=weights[possible])
    far = np.where(possible, np.abs(scaled - np.float32(mean)), np.float32(math.inf))
    last, _ = Ranks(-far, weights).reach(typical_p)
    tokens = np.arange(len(far))
    scaled[(far > far[last]) | ((far == far[last]) & (tokens > last))] = -math.inf


def _draw(weights: NDArray[np.float32], uniform: float) -> int:
    """Returns the column where the cumulated weight passes `uniform` in [0, 1) times the total.

    The column never has weight 0.
    """
    # summing every column in float64 would take most of a draw's time: first the block, then the column in it
    whole = len(weights) // _BLOCK * _BLOCK
    masses = weights[:whole].reshape(-1, _BLOCK).sum(axis=1).astype(np.float64)
    if whole < len(weights):
        masses = np.append(masses, weights[whole:].sum(dtype=np.float64))
    block, rest = _passed(masses, uniform)
    start = block * _BLOCK
    column, _ = _passed(weights[start : start + _BLOCK].astype(np.float64), rest)
    return start + column


def _passed(masses: NDArray[np.float64], uniform: float) -> tuple[int, float]:
    """Returns the place where the cumulated mass passes `uniform` times the total, and the rest.

    The rest is the distance to the target within that place, as a share of its mass, in [0, 1).
    """
    cumulated = masses.cumsum()
    total = float(cumulated[-1])
    # rounding may lift the product to the total, which no place passes
    target = min(uniform * total, math.nextafter(total, 0))
    place = int(np.searchsorted(cumulated, target, side="right"))
    here = float(masses[place])
    rest = (target - (float(cumulated[place]) - here)) / here
    return place, min(max(rest, 0.0), math.nextafter(1, 0))


def _measure(plain: NDArray[np.float32], masked: NDArray[np.float32], choice: Choice, chosen: Chosen) -> None:
    """Fills in log-probability, allowed mass and most likely tokens of a line. Overwrites `plain`."""
    if not choice.greedy:
        np.divide(plain, choice.temperature, out=plain)
    chosen.logprob, top, total = score(plain, chosen.token, choice.list_top)
    if choice.row is None or choice.row.kind == RowKind.ALL:
        chosen.allowed_mass = 1.0
    else:
        chosen.allowed_mass = min(1.0, float(plain.dot(masked > -math.inf)) / total)
    if choice.list_top:
        chosen.top = top


def score(line: NDArray[np.float32], token: int, count: int) -> tuple[float, list[tuple[int, float]], float]:
    """Returns the log-probability of a token, and those of the `count` most likely tokens.

    Also returns the sum of the unnormalized probabilities, with which it overwrites `line`, float32 [N].
    """
    value, largest = float(line[token]), float(line.max())
    best = largest_first(line, count)
    values = line[best].tolist()
    np.subtract(line, largest, out=line)
    total = float(np.exp(line, out=line).sum())
    norm = largest + math.log(total)
    return value - norm, [(one, each - norm) for one, each in zip(best.tolist(), values, strict=True)], total


def describe_next(look: Look, logits: NDArray[np.float32], known: int) -> list[tuple[int, float]]:
    """Answers a controller's look: writes all logits, or returns the tokens that it asked for.

    `logits`: float32 [N], as the model has computed them; `known`: ids from there on are no tokens. Returns
    `StepInput.top_logprobs`, with log-probabilities at temperature 1.
    """
    line = logits[:known]
    if look.logits is None:
        _, likely, _ = score(line.copy(), 0, look.top_logprobs)
        return likely
    look.logits[: len(line)] = line
    look.logits[len(line) :] = -math.inf
    return []


def largest_first(values: NDArray[np.floating], count: int) -> NDArray[np.intp]:
    """Returns the places of the `count` largest of `values` [N], largest first; ties by place."""
    count = min(count, len(values))
    if count == 0:
        return np.empty(0, np.intp)
    # the largest values of columns bound the wanted ones from below. Unlike a partition of all values, this
    # needs no copy of them: memory of that size goes back to the system each time, and comes back as faults
    columns = max(2048, count)
    whole = len(values) - len(values) % columns
    tops = values[:whole].reshape(-1, columns).max(axis=0) if whole > columns else values
    least = np.partition(tops, len(tops) - count)[-count]
    (places,) = (values >= least).nonzero()
    best: NDArray[np.intp] = places[np.argsort(-values[places], kind="stable")[:count]]
    return best
