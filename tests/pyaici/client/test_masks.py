"""Rows compared with a simple reference: every kind, dtype and device path, with padded vocabularies."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aicirt.contract.abi import RowKind
from pyaici.client.masks import _apply_batched, apply_masks, count_allowed
from pyaici.client.results import Row
from tests.thorough import cases

NEG_INF = float("-inf")
CPU = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def bitmask(allowed: set[int], vocab_size: int) -> Row:
    bits = np.zeros((vocab_size + 31) // 32, dtype=np.uint32)
    for token in allowed:
        bits[token >> 5] |= np.uint32(1 << (token & 31))
    return Row(RowKind.BITMASK, bits=bits)


def sparse(default: float, entries: list[tuple[int, float]]) -> Row:
    return Row(
        RowKind.SPARSE,
        default=default,
        tokens=np.array([t for t, _ in entries], dtype=np.uint32),
        bias=np.array([b for _, b in entries], dtype=np.float32),
    )


def reference(logits: torch.Tensor, row: Row | None, vocab_size: int | None) -> torch.Tensor:
    """Applies a row token by token, in float64."""
    out = []
    for token, logit in enumerate(logits.double().tolist()):
        bias = 0.0
        if row is not None and row.kind == RowKind.BITMASK:
            word = row.bits[token >> 5] if token >> 5 < len(row.bits) else 0
            bias = 0.0 if int(word) >> (token & 31) & 1 else NEG_INF
        elif row is not None and row.kind == RowKind.TOKEN:
            bias = 0.0 if token == row.token else NEG_INF
        elif row is not None and row.kind == RowKind.DENSE:
            bias = float(row.bias[token]) if token < len(row.bias) else NEG_INF
        elif row is not None and row.kind == RowKind.SPARSE:
            listed = [float(b) for t, b in zip(row.tokens, row.bias, strict=True) if t == token]
            bias = sum(listed) if listed else row.default
        out.append(NEG_INF if vocab_size is not None and token >= vocab_size else logit + bias)
    return torch.tensor(out, dtype=torch.float64)


def close(got: torch.Tensor, want: torch.Tensor, dtype: torch.dtype) -> bool:
    eps = 2 * torch.finfo(dtype).eps
    want = want.clamp(max=torch.finfo(dtype).max)
    return bool(torch.allclose(got.double(), want, rtol=eps, atol=eps))


def batched(logits: torch.Tensor, rows: list[Row | None], vocab_size: int | None = None) -> None:
    """Applies rows with the code path for CUDA, on any device."""
    if vocab_size is not None:
        logits[:, vocab_size:] = NEG_INF
    _apply_batched(logits, rows)


PATHS = [pytest.param(apply_masks, "cpu", id="cpu"), pytest.param(batched, "cpu", id="batched-on-cpu")]
if torch.cuda.is_available():
    PATHS.append(pytest.param(apply_masks, "cuda", id="cuda"))
Path = Callable[..., None]


@pytest.mark.parametrize("dtype", CPU, ids=str)
@pytest.mark.parametrize(("apply", "device"), PATHS)
@pytest.mark.parametrize("num_logits", [1, 31, 64, 97])
def test_every_kind_in_one_batch(apply: Path, device: str, dtype: torch.dtype, num_logits: int) -> None:
    last = num_logits - 1
    rows: list[Row | None] = [
        None,
        Row(RowKind.ALL),
        Row(RowKind.TOKEN, token=last),
        bitmask({0, last}, num_logits),
        bitmask(set(), num_logits),
        bitmask(set(range(num_logits)), num_logits),
        sparse(0.0, [(0, -1.5), (last, 2.0)]),
        sparse(NEG_INF, [(last, 0.25)]),
        sparse(NEG_INF, []),
        sparse(0.0, []),
        Row(RowKind.DENSE, bias=np.linspace(-3, 3, num_logits, dtype=np.float32)),
        Row(RowKind.DENSE, bias=np.full(num_logits, NEG_INF, dtype=np.float32)),
    ]
    before = torch.randn(len(rows), num_logits, generator=torch.Generator().manual_seed(1)).to(dtype)
    got = before.clone().to(device)
    apply(got, rows)
    for i, row in enumerate(rows):
        assert close(got[i].cpu(), reference(before[i], row, None), dtype), (i, row)
    assert torch.equal(got[0].cpu(), before[0]) and torch.equal(got[1].cpu(), before[1])


@pytest.mark.parametrize(("apply", "device"), PATHS)
@pytest.mark.parametrize(("vocab_size", "num_logits"), [(33, 40), (33, 64), (33, 130), (64, 65), (40, 33)])
def test_padded_vocabularies_have_their_tail_masked(
    apply: Path, device: str, vocab_size: int, num_logits: int
) -> None:
    everything = bitmask(set(range(vocab_size)), vocab_size)
    dense = Row(RowKind.DENSE, bias=np.zeros(vocab_size, dtype=np.float32))
    rows = [None, Row(RowKind.ALL), everything, sparse(0.0, []), dense]
    got = torch.zeros(len(rows), num_logits, device=device)
    apply(got, rows)
    n = min(vocab_size, num_logits)
    masked_by_size = torch.isinf(got[[2, 4]])
    assert bool(masked_by_size[:, n:].all()) and not bool(masked_by_size[:, :n].any())
    assert not bool(torch.isinf(got[[0, 1, 3]]).any())

    got = torch.zeros(len(rows), num_logits, device=device)
    apply(got, rows, vocab_size)
    assert bool(torch.isinf(got[:, n:]).all()) and not bool(torch.isinf(got[:, :n]).any())


@given(data=st.data())
@settings(max_examples=cases(37, 150), deadline=None)
def test_both_paths_equal_the_reference(data: st.DataObject) -> None:
    num_logits = data.draw(st.integers(1, 80))
    vocab_size = data.draw(st.integers(1, 90))
    tokens = st.integers(0, num_logits - 1)
    biases = st.one_of(st.just(NEG_INF), st.floats(-50, 50, width=32))
    row = st.one_of(
        st.none(),
        st.just(Row(RowKind.ALL)),
        st.builds(lambda t: Row(RowKind.TOKEN, token=t), tokens),
        st.builds(lambda s: bitmask(s, vocab_size), st.sets(st.integers(0, vocab_size - 1))),
        st.builds(sparse, st.sampled_from([0.0, NEG_INF]), st.lists(st.tuples(tokens, biases), max_size=6)),
        st.builds(
            lambda b: Row(RowKind.DENSE, bias=np.array(b, dtype=np.float32)),
            st.lists(biases, min_size=vocab_size, max_size=vocab_size),
        ),
    )
    rows = data.draw(st.lists(row, min_size=1, max_size=5))
    limit = data.draw(st.sampled_from([None, vocab_size]))
    before = torch.randn(len(rows), num_logits, generator=torch.Generator().manual_seed(2))
    for apply in (apply_masks, batched):
        got = before.clone()
        apply(got, rows, limit)
        for i, one in enumerate(rows):
            assert torch.allclose(got[i].double(), reference(before[i], one, limit), atol=1e-4), (apply, one)


@given(st.data())
def test_count_allowed_equals_the_tokens_that_the_reference_allows(data: st.DataObject) -> None:
    vocab_size = data.draw(st.integers(1, 100))
    size = data.draw(st.integers(1, 100))  # of the row: it may have fewer tokens than the vocabulary, or more
    token = st.integers(0, size - 1)
    bias = st.sampled_from([NEG_INF, -1.0, 0.0, 2.5])
    row = data.draw(
        st.one_of(
            st.just(Row(RowKind.ALL)),
            st.builds(Row, st.just(RowKind.TOKEN), token=token),
            st.builds(bitmask, st.sets(token), st.just(size)),
            st.builds(sparse, st.sampled_from([0.0, NEG_INF]), st.lists(st.tuples(token, bias))),
            st.lists(bias, min_size=size, max_size=size).map(
                lambda biases: Row(RowKind.DENSE, bias=np.array(biases, np.float32))
            ),
        )
    )
    left = reference(torch.zeros(max(vocab_size, size)), row, vocab_size)
    assert count_allowed(row, vocab_size) == int((left > NEG_INF).sum())


@pytest.mark.parametrize(("apply", "device"), PATHS)
def test_infinite_and_nan_logits_cannot_pass_a_bitmask_as_numbers(apply: Path, device: str) -> None:
    got = torch.tensor([[float("inf"), float("inf"), 1.0]], device=device)
    apply(got, [bitmask({1, 2}, 3)])
    assert got.tolist() == [[NEG_INF, float("inf"), 1.0]]


@pytest.mark.parametrize(("apply", "device"), PATHS)
def test_a_bias_beyond_half_precision_stops_at_its_largest_value(apply: Path, device: str) -> None:
    got = torch.zeros(2, 4, dtype=torch.float16, device=device)
    apply(got, [sparse(0.0, [(1, 3e38)]), Row(RowKind.DENSE, bias=np.full(4, 1e30, dtype=np.float32))])
    largest = torch.finfo(torch.float16).max
    assert got[0].tolist() == [0, largest, 0, 0] and got[1].tolist() == [largest] * 4


def test_read_only_bits_can_be_applied() -> None:
    row = bitmask({2}, 8)
    row.bits.flags.writeable = False
    got = torch.zeros(1, 8)
    apply_masks(got, [row])
    assert got[0].isfinite().nonzero().flatten().tolist() == [2]


def test_only_the_given_view_of_the_logits_is_written() -> None:
    whole = torch.zeros(3, 10)
    apply_masks(whole[1:2, 2:6], [Row(RowKind.TOKEN, token=1)])
    assert int(torch.isinf(whole).sum()) == 3 and whole[1, 3] == 0


def test_invalid_rows_are_refused_before_anything_is_written() -> None:
    got = torch.zeros(1, 8)
    with pytest.raises(ValueError, match=r"shape \(1, 8\) instead of \[2, N\]"):
        apply_masks(got, [None, None])
    with pytest.raises(ValueError, match="token 8"):
        apply_masks(got, [Row(RowKind.TOKEN, token=8)])
    with pytest.raises(ValueError, match="token 9"):
        apply_masks(got, [sparse(NEG_INF, [(9, 0.0)])])
    with pytest.raises(ValueError, match="token -1"):
        apply_masks(got, [Row(RowKind.TOKEN)])
    assert not bool(torch.isinf(got).any())


def test_the_module_does_not_import_torch() -> None:
    code = "import pyaici.client.masks, sys; assert 'torch' not in sys.modules and 'numpy' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
