"""Sampling of tokens: distributions, filters and limits, in numpy and with torch."""

from __future__ import annotations

import math
import random
from typing import Any, Protocol

import numpy as np
import pytest
import torch

from aicirt.contract.abi import RowKind
from pyaici.client.results import Row
from pyaici.engines.batching import sampler
from pyaici.engines.batching.sampler import Choice, Chosen, NumpySampler, Ranks, largest_first
from pyaici.engines.hf import device_sampler
from pyaici.engines.hf.device_sampler import DeviceSampler

NEG_INF = float("-inf")


class Pick(Protocol):
    """Chooses a token for each line of logits [B, N]."""

    def __call__(self, logits: Any, choices: list[Choice], vocab_size: int | None = None) -> list[Chosen]: ...


def pick_with_numpy(logits: Any, choices: list[Choice], vocab_size: int | None = None) -> list[Chosen]:
    batch = np.array(logits, np.float32)
    numpy = NumpySampler()
    return numpy.choose(batch, numpy.mask(batch, choices, vocab_size or batch.shape[1]), choices)


def pick_with_torch(logits: Any, choices: list[Choice], vocab_size: int | None = None) -> list[Chosen]:
    batch = torch.tensor(np.array(logits, np.float32))
    device = DeviceSampler()
    return device.choose(batch, device.mask(batch, choices, vocab_size or batch.shape[1]), choices)


@pytest.fixture(params=[pick_with_numpy, pick_with_torch])
def pick(request: pytest.FixtureRequest) -> Pick:
    found: Pick = request.param
    return found


def choice(
    temperature: float = 1.0, top_p: float = 1.0, top_k: int = 0, seed: int = 0, **more: object
) -> Choice:
    generator = random.Random(seed) if temperature else None
    return Choice(temperature, top_p, top_k, generator, **more)  # type: ignore[arg-type]


class Fixed(random.Random):
    """A generator that always draws the same number."""

    def __init__(self, number: float) -> None:
        super().__init__()
        self._number = number

    def random(self) -> float:
        return self._number


def frequencies(
    pick: Pick, logits: list[float], n: int = 4000, row: Row | None = None, **options: float
) -> list[float]:
    generator = random.Random(1)
    one = Choice(
        options.get("temperature", 1.0),
        options.get("top_p", 1.0),
        int(options.get("top_k", 0)),
        generator,
        min_p=options.get("min_p", 0.0),
    )
    one.row = row
    tokens = [chosen.token for chosen in pick([logits] * n, [one] * n)]
    return [tokens.count(token) / n for token in range(len(logits))]


P = [0.5, 0.25, 0.125, 0.0625, 0.0625]
LOGITS = [math.log(p) for p in P]


@pytest.mark.parametrize(
    ("options", "want"),
    [
        ({}, P),
        ({"temperature": 0.5}, [p * p / sum(q * q for q in P) for p in P]),
        ({"temperature": 2.0}, [p**0.5 / sum(q**0.5 for q in P) for p in P]),
        ({"top_k": 2}, [2 / 3, 1 / 3, 0, 0, 0]),
        ({"top_k": 1}, [1, 0, 0, 0, 0]),
        ({"top_p": 0.5}, [1, 0, 0, 0, 0]),
        ({"top_p": 0.51}, [2 / 3, 1 / 3, 0, 0, 0]),
        ({"top_p": 0.01}, [1, 0, 0, 0, 0]),
        ({"top_p": 0.6, "top_k": 3}, [2 / 3, 1 / 3, 0, 0, 0]),
        ({"min_p": 0.25}, [4 / 7, 2 / 7, 1 / 7, 0, 0]),
        ({"min_p": 1.0}, [1, 0, 0, 0, 0]),
        ({"min_p": 0.25, "temperature": 0.5}, [0.8, 0.2, 0, 0, 0]),
        ({"min_p": 0.25, "top_k": 2}, [2 / 3, 1 / 3, 0, 0, 0]),
        ({"min_p": 0.25, "top_p": 0.5}, [1, 0, 0, 0, 0]),
        ({"temperature": 1e-7}, [1, 0, 0, 0, 0]),
        ({"temperature": 1e-5}, [1, 0, 0, 0, 0]),
    ],
    ids=str,
)
def test_sampled_frequencies_follow_the_distribution(
    pick: Pick, options: dict[str, float], want: list[float]
) -> None:
    assert frequencies(pick, LOGITS, **options) == pytest.approx(want, abs=0.03)


def test_masks_and_biases_apply_before_the_filters(pick: Pick) -> None:
    row = Row(RowKind.BITMASK, bits=np.array([0b01110], dtype=np.uint32))
    assert frequencies(pick, LOGITS, row=row, top_k=2) == pytest.approx([0, 2 / 3, 1 / 3, 0, 0], abs=0.03)
    dense = Row(RowKind.DENSE, bias=np.array([NEG_INF, 0, 0, math.log(4), 0], dtype=np.float32))
    want = [0, 0.25, 0.125, 0.25, 0.0625]
    assert frequencies(pick, LOGITS, row=dense) == pytest.approx([w / sum(want) for w in want], abs=0.03)


def test_top_p_extends_its_first_guess_when_necessary(pick: Pick) -> None:
    """All 5000 tokens have equal probability, so 4500 of them make up 90 %."""
    flat = np.zeros((1, 5000))
    tokens = {pick(flat, [choice(top_p=0.9, seed=seed)])[0].token for seed in range(400)}
    assert len(tokens) > 300


@pytest.mark.parametrize("tail", [30, 2000], ids=["one list", "two lists"])
@pytest.mark.parametrize("top_p", [0.3, 0.9, 0.97])
def test_top_p_keeps_as_few_tokens_as_possible(pick: Pick, tail: int, top_p: float) -> None:
    """The largest number draws the last kept token: the first whose cumulative probability suffices."""
    weights = np.concatenate([np.linspace(3, 1, 200), np.linspace(0.2, 0.1, tail)])
    probabilities = weights / weights.sum()
    last = int((probabilities.cumsum() < top_p).sum())
    order = np.random.default_rng(0).permutation(len(weights))
    logits = np.empty(len(weights))
    logits[order] = np.log(probabilities)
    largest = Fixed(math.nextafter(1, 0))
    drawn = pick(logits[None], [Choice(1.0, top_p, 0, largest)])[0].token
    assert abs(order.tolist().index(drawn) - last) <= 1, "up to rounding"


def test_every_line_has_its_own_settings_and_random_numbers(pick: Pick) -> None:
    logits = np.random.default_rng(0).normal(0, 3, (6, 1000))
    settings = [
        {"temperature": 0.0},
        {"temperature": 0.7, "top_p": 0.9},
        {"temperature": 1.3},
        {"temperature": 1.0, "top_k": 5},
        {"temperature": 2.0, "top_k": 400, "top_p": 0.99},
        {"temperature": 1.0},
    ]
    together = pick(logits, [choice(seed=i, **s) for i, s in enumerate(settings)])
    alone = [pick(logits[i : i + 1], [choice(seed=i, **s)])[0] for i, s in enumerate(settings)]
    assert [c.token for c in together] == [c.token for c in alone]
    reversed_batch = pick(logits[::-1], [choice(seed=i, **s) for i, s in enumerate(settings)][::-1])
    assert [c.token for c in reversed_batch][::-1] == [c.token for c in alone]


def test_forbidden_tokens_are_not_drawn_even_by_extreme_random_numbers(pick: Pick) -> None:
    """The random numbers 0, and one that rounds to 1, draw allowed tokens."""
    logits = [[NEG_INF, math.log(0.3), NEG_INF, math.log(0.7), NEG_INF]] * 3
    ends = [0.0, math.nextafter(1, 0), 0.3 + 1e-6]
    drawn = pick(logits, [Choice(1.0, 1.0, 0, Fixed(end)) for end in ends])
    assert [chosen.token for chosen in drawn] == [1, 3, 3]
    (last,) = pick(np.zeros((1, 50_000)), [Choice(1.0, 1.0, 0, Fixed(ends[1]))])
    assert last.token == 49_999


def test_logprobs_and_mass_come_from_the_unmasked_distribution(pick: Pick) -> None:
    logits = [LOGITS] * 4
    row = Row(RowKind.BITMASK, bits=np.array([0b00110], dtype=np.uint32))
    token = Row(RowKind.TOKEN, token=2)
    cold = [p * p / sum(q * q for q in P) for p in P]
    a, b, c, d = pick(
        logits,
        [
            choice(0.0, row=row, measure=True, list_top=2),
            choice(0.5, row=token, measure=True),
            choice(0.0),
            choice(0.0, measure=True, row=Row(RowKind.ALL)),
        ],
    )
    assert (a.token, b.token, c.token, d.token) == (1, 2, 0, 0)
    assert (a.logprob, a.allowed_mass) == pytest.approx((math.log(0.25), 0.375), abs=1e-6)
    assert a.top is not None and [t for t, _ in a.top] == [0, 1]
    assert [v for _, v in a.top] == pytest.approx([math.log(0.5), math.log(0.25)], abs=1e-6)
    assert (b.logprob, b.allowed_mass) == pytest.approx((math.log(cold[2]), cold[2]), abs=1e-6)
    assert b.top is None and math.isnan(c.logprob) and math.isnan(c.allowed_mass)
    assert d.allowed_mass == 1.0


def test_tokens_with_a_tiny_allowed_mass_are_sampled_correctly(pick: Pick) -> None:
    """The allowed tokens have a probability that float32 cannot hold."""
    logits = [[0.0, -200.0, -201.0]]
    row = Row(RowKind.BITMASK, bits=np.array([0b110], dtype=np.uint32))
    (chosen,) = pick(logits, [choice(1.0, row=row, measure=True)])
    assert chosen.token in (1, 2) and chosen.logprob == pytest.approx(-200 - (chosen.token - 1))
    assert chosen.allowed_mass == pytest.approx(0, abs=1e-30)


def test_ids_beyond_the_vocabulary_have_no_probability(pick: Pick) -> None:
    logits = [[0.0, 0.0, 9.0, 9.0]]
    (chosen,) = pick(logits, [choice(0.0, measure=True, list_top=4)], vocab_size=2)
    assert chosen.token in (0, 1) and chosen.logprob == pytest.approx(math.log(0.5))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_no_token_is_chosen_if_all_are_forbidden_or_a_logit_is_nan(pick: Pick, temperature: float) -> None:
    nothing = Row(RowKind.BITMASK, bits=np.zeros(1, dtype=np.uint32))
    logits = [[1.0, 2.0], [float("nan"), 1.0], [1.0, 2.0]]
    empty, broken, good = pick(
        logits, [choice(temperature, row=nothing, measure=True), choice(temperature), choice(temperature)]
    )
    assert (empty.token, broken.token) == (-1, -1) and good.token in (0, 1)
    assert math.isnan(empty.logprob)


@pytest.mark.parametrize(
    "kind", ["steep", "flat", "equal", "one", "nearly", "steps", "masked", "outlier", "tiny"]
)
@pytest.mark.parametrize(
    "options",
    [{"top_p": 0.99}, {"top_p": 0.3}, {"top_k": 7}, {"top_k": 900}, {"top_k": 40, "top_p": 0.9}, {}],
    ids=str,
)
def test_ranks_draw_the_same_tokens_as_a_sorted_line(kind: str, options: dict[str, float]) -> None:
    """Compares with the code path for GPUs, and with sorting in float64. Draws at an edge may differ."""
    rng = np.random.default_rng(5)
    lines = {
        "steep": rng.normal(0, 8, 1000),
        "flat": rng.normal(0, 1e-3, 1000),
        "equal": np.zeros(1000),
        "one": np.append(np.full(999, -np.inf), 3.0),
        "nearly": np.append(np.full(500, -np.inf), rng.normal(0, 1e-40, 500)),
        "steps": rng.integers(0, 6, 1000).astype(float),
        "masked": np.where(rng.random(1000) < 0.9, -np.inf, rng.normal(0, 2, 1000)),
        "outlier": np.append(rng.normal(0, 1e-3, 999), 90.0),
        "tiny": rng.normal(0, 3, 3),
    }
    line = lines[kind].astype(np.float32)
    one = choice(**options)  # type: ignore[arg-type]
    order = np.argsort(-line, kind="stable")
    weights = np.exp(line.astype(np.float64) - line.max())[order]
    weights[one.top_k or len(line) :] = 0
    before = weights.cumsum() - weights
    weights[(before >= one.top_p * weights.sum()) & (np.arange(len(line)) > 0)] = 0
    cumulated = weights.cumsum() / weights.sum()
    uniforms = np.append(rng.random(40), [0.0, math.nextafter(1, 0)])
    several = torch.from_numpy(line).repeat(len(uniforms), 1)
    by_sorting = device_sampler._draw_sorted(
        several, [one] * len(uniforms), torch.from_numpy(uniforms)
    ).tolist()
    for uniform, sorted_one in zip(uniforms, by_sorting, strict=True):
        token = Ranks(line).draw(one.top_k, one.top_p, uniform)
        rank, other = (order.tolist().index(found) for found in (token, sorted_one))
        assert weights[rank] > 0 or rank == 0 or abs(before[rank] / weights.sum() - 1) < 1e-5
        low = cumulated[rank - 1] if rank else 0.0
        assert low - 1e-5 <= uniform <= cumulated[rank] + 1e-5, "the number must fall on this token"
        # with float32 the filter may keep one token more in a hundred, which shifts all others
        assert abs(rank - other) <= 2 or abs(cumulated[min(rank, other)] - uniform) < 1e-4


def test_a_draw_counts_every_column_once(pick: Pick) -> None:
    """The columns are summed in blocks, and the last block may be incomplete."""
    weights = np.random.default_rng(1).random((3, 150))
    weights[1, 30:140] = 0
    with np.errstate(divide="ignore"):
        logits = np.log(weights).astype(np.float32)
    cumulated = np.exp(logits.astype(np.float64)).cumsum(axis=1)
    for uniform in np.linspace(0, 0.999999, 200):
        drawn = pick(logits, [Choice(1.0, 1.0, 0, Fixed(uniform))] * 3)
        for chosen, line in zip(drawn, cumulated, strict=True):
            assert chosen.token == np.searchsorted(line, line[-1] * uniform, side="right")


@pytest.mark.parametrize("size", [200, 9000])
@pytest.mark.parametrize("count", [0, 1, 7, 200, 10000])
def test_largest_values_come_first_and_equal_ones_by_place(size: int, count: int) -> None:
    """The largest of many values are all in one column of the search."""
    values = np.random.default_rng(3).integers(0, 40, size).astype(np.float32)
    values[50:60] = NEG_INF
    values[::2048] += 100
    want = sorted(range(size), key=lambda place: (-values[place], place))[:count]
    assert largest_first(values, count).tolist() == want


def test_equal_values_rank_by_column() -> None:
    generator = torch.Generator().manual_seed(3)
    lines = torch.randint(0, 40, (5, 200), generator=generator).float()
    lines[0, 7:] = NEG_INF
    order = torch.sort(lines, dim=1, descending=True, stable=True).indices
    for width in (1, 50, 199, 200):
        values = lines.topk(width, dim=1).values
        for rank in range(width):
            assert torch.equal(device_sampler._place(lines, values, torch.full((5, 1), rank)), order[:, rank])


@pytest.mark.parametrize(
    "options",
    [
        {"top_p": 0.99},
        {"top_k": 900},
        {"top_k": 900, "top_p": 0.9},
        {"typical_p": 0.9, "top_k": 50_000},
        {"top_n_sigma": 1.0},
    ],
    ids=str,
)
def test_wide_filters_do_not_sort_tokens(options: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Sorting a line with its indices takes up to 50 ms, for which all requests in the step wait."""
    argsort = np.argsort
    sorted_lengths = []

    def count(values: Any, **kwargs: Any) -> Any:
        sorted_lengths.append(len(values))
        return argsort(values, **kwargs)

    monkeypatch.setattr(sampler.np, "argsort", count)
    logits = np.random.default_rng(2).normal(0, 3, (1, 100_000))
    (chosen,) = pick_with_numpy(logits, [choice(**options)])  # type: ignore[arg-type]
    assert 0 <= chosen.token < 100_000 and sum(sorted_lengths) < 10_000


@pytest.mark.parametrize("options", [{}, {"top_p": 0.9}, {"top_k": 3}], ids=str)
def test_a_token_with_an_infinite_logit_is_drawn(pick: Pick, options: dict[str, float]) -> None:
    logits = np.zeros((1, 100))
    logits[0, 42] = float("inf")
    (chosen,) = pick(logits, [choice(**options)])  # type: ignore[arg-type]
    assert chosen.token == 42


@pytest.mark.parametrize("options", [{}, {"top_p": 0.9}, {"top_k": 3}], ids=str)
@pytest.mark.parametrize("temperature", [1e-5, 0.5, 1e39])
def test_huge_biases_and_temperatures_draw_an_allowed_token(
    pick: Pick, options: dict[str, float], temperature: float
) -> None:
    """A controller chooses biases and temperatures, and an error here would end the step for all requests."""
    bias = np.array([NEG_INF, 3e38, 3e38, -3e38, 0], np.float32)
    row = Row(RowKind.DENSE, bias=bias)
    tokens = {
        pick([LOGITS], [choice(temperature, seed=seed, row=row, **options)])[0].token  # type: ignore[arg-type]
        for seed in range(20)
    }
    assert tokens <= ({1, 2} if temperature < 1 else {1, 2, 3, 4})
