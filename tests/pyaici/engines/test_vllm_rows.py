"""Rows for vLLM's workers: a mask and biases have the effect of the controller's row on Transformers."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from aicirt.contract.abi import RowKind, Verb
from aicirt.contract.messages import Truncation
from pyaici.client.masks import apply_masks, truncate
from pyaici.client.results import MidResult, Row
from pyaici.engines.batching.sampler import Choice, NumpySampler
from pyaici.engines.vllm.scheduling.controlled import UNKNOWN, measure
from pyaici.engines.vllm.workers import WorkerRow, fill_mask, make_row
from pyaici.engines.vllm.workers.runners import StepRows, add_biases

WIDTH = 1000
_RANDOM = np.random.default_rng(3)


def sparse(default: float) -> Row:
    """Returns a row with a token twice, a forbidden token, and a token of both kinds."""
    tokens = np.array([5, 31, 32, 5, 700, 999, 40, 40], np.uint32)
    bias = np.array([2.5, -1, -math.inf, 1, 0, 3, 1, -math.inf], np.float32)
    return Row(RowKind.SPARSE, default=default, tokens=tokens, bias=bias)


def dense(size: int) -> Row:
    bias = _RANDOM.normal(0, 3, size).astype(np.float32)
    bias[::7] = -math.inf
    return Row(RowKind.DENSE, bias=bias)


ROWS = {
    "sparse": sparse(0.0),
    "sparse, others forbidden": sparse(-math.inf),
    "dense": dense(WIDTH),
    "dense, shorter than the logits": dense(WIDTH - 45),
}


def logits(count: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.from_numpy(_RANDOM.normal(0, 8, (count, WIDTH)).astype(np.float32)).to(dtype)


def apply_mask(line: torch.Tensor, row: Row) -> None:
    """Forbids tokens as vLLM does."""
    words = np.full((WIDTH + 31) // 32, 0x55555555, np.int32)
    fill_mask(row, words)
    bits: NDArray[np.uint8] = np.unpackbits(words.view(np.uint8), bitorder="little")[:WIDTH]
    line.masked_fill_(torch.from_numpy(bits == 0), -math.inf)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_mask_and_biases_equal_the_row(dtype: torch.dtype) -> None:
    batch = logits(len(ROWS) + 1, dtype)
    expected = batch.clone()
    apply_masks(expected, [*ROWS.values(), None])
    for line, row in zip(batch, ROWS.values(), strict=False):
        apply_mask(line, row)
    add_biases(batch, [(line, make_row(row, mass=False)) for line, row in enumerate(ROWS.values())])
    assert torch.equal(batch, expected)


def test_biases_that_are_zero_are_not_sent() -> None:
    tokens, zero = np.array([3], np.uint32), np.zeros(1, np.float32)
    row = Row(RowKind.SPARSE, default=-math.inf, tokens=tokens, bias=zero)
    assert make_row(row, mass=False) == WorkerRow() and not make_row(row, mass=True).changes


@pytest.mark.parametrize(("given", "sent"), [(0.0, 0.0), (1e-6, 0.0), (0.7, 0.7), (math.inf, 1e30)])
def test_temperatures_are_those_that_vllm_can_divide_by(given: float, sent: float) -> None:
    row = make_row(Row(RowKind.ALL, temperature=given), mass=False)
    assert row.temperature == sent and row.changes


@pytest.mark.parametrize("temperature", [0.0, 0.6, 3.0])
@pytest.mark.parametrize("kind", list(ROWS))
def test_measured_values_equal_those_on_transformers(kind: str, temperature: float) -> None:
    row, sampler, batch = replace(ROWS[kind], top_logprobs=3), NumpySampler(), logits(3)
    choice = Choice(temperature=0.0, top_p=1, top_k=0, generator=None, row=row, measure=True, list_top=3)
    plain = batch[1].numpy().copy()[None]
    if temperature:  # the engine on Transformers measures logits that are divided by the temperature
        plain /= temperature
    choices = [choice]
    masked = plain.copy()
    before = sampler.mask(masked, choices, WIDTH)
    (chosen,) = sampler.choose(masked, before, choices)
    step = StepRows({"b": [make_row(row, mass=True)], "c": [WorkerRow()]}, {"b": temperature, "c": 1.0})
    step.set_lines({"a": (0, 1), "b": (1, 1), "c": (2, 1)})
    step.measure(batch)
    apply_mask(batch[1], row)
    step.apply(batch)
    assert step.applied
    assert {name: np.exp(mass).tolist() for name, mass in step.measured_masses().items()} == {
        "b": pytest.approx([chosen.allowed_mass], rel=1e-5)
    }
    # the second request samples one token, and a draft of the first is rejected
    step.read_tokens(torch.tensor([[0, -1], [chosen.token, -1], [0, 0]]), ["a", "b", "c"])
    reported = step.measured_logprobs()
    assert reported.keys() == {"b"}
    answer = MidResult(Verb.SAMPLE, row)
    found = measure(answer, step.measured_masses()["b"], reported["b"], 0)
    assert found.logprob == pytest.approx(chosen.logprob, rel=1e-4)
    assert found.top_logprobs is not None and chosen.top is not None
    assert [token for token, _ in found.top_logprobs] == [token for token, _ in chosen.top]
    values = [value for _, value in found.top_logprobs]
    assert values == pytest.approx([value for _, value in chosen.top], rel=1e-4)
    assert measure(answer, step.measured_masses()["b"], reported["b"], 1) == UNKNOWN
    assert measure(answer, None, None, 0) == UNKNOWN


def test_each_position_of_a_request_has_its_own_row() -> None:
    rows = [make_row(ROWS["dense"], mass=True), WorkerRow(mass=True), make_row(ROWS["sparse"], mass=True)]
    batch = logits(5)
    expected = batch.clone()
    add_biases(expected, [(1, rows[0]), (3, rows[2])])
    # without a row for the last position, whose draft was not followed
    step = StepRows({"a": rows, "gone": [WorkerRow(biases=rows[0].biases)]}, {"a": 0.0, "gone": 1.0})
    step.set_lines({"a": (1, 4)})
    step.measure(batch)
    step.apply(batch)
    assert torch.equal(batch, expected)
    assert {name: mass.tolist() for name, mass in step.measured_masses().items()} == {"a": [0.0, 0.0, 0.0]}


def test_positions_leave_out_tokens_at_their_temperatures_after_their_biases() -> None:
    one, requests = Truncation(top_k=3, typical_p=0.5), Truncation(top_p=0.9, min_p=0.01)
    rows = [
        make_row(replace(ROWS["dense"], truncation=one), mass=False, own=requests),
        make_row(Row(RowKind.ALL), mass=False, own=requests),
    ]
    batch, greedy = logits(3), WorkerRow(truncation=one)
    expected = batch.clone()
    add_biases(expected, [(0, rows[0])])
    for line, options in enumerate((Truncation(0.9, 3, 0.01, 0.5), requests)):
        scaled = expected[line : line + 1] / 5.0
        truncate(scaled, [options])
        expected[line].masked_fill_(scaled[0] == -math.inf, -math.inf)
    step = StepRows({"a": rows, "b": [greedy]}, {"a": 5.0, "b": 0.0})
    step.set_lines({"a": (0, 2), "b": (2, 1)})
    step.apply(batch)
    assert torch.equal(batch, expected)
    kept = (batch > -math.inf).sum(dim=1).tolist()
    assert 1 <= kept[0] <= 3 < kept[1] < kept[2] == WIDTH


def test_a_huge_bias_stays_finite_at_a_low_temperature() -> None:
    batch = logits(1)
    add_biases(batch, [(0, WorkerRow(tokens=np.array([9, 9]), biases=np.array([3e38, 3e38], np.float32)))])
    assert torch.softmax(batch / 1e-5, 1)[0, 9] == 1


def test_a_token_beyond_the_logits_is_refused() -> None:
    with pytest.raises(ValueError, match="token 1000; there are 1000"):
        add_biases(logits(1), [(0, WorkerRow(tokens=np.array([WIDTH]), biases=np.ones(1, np.float32)))])
