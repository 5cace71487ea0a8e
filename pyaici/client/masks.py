"""Applies rows of controllers to logits, in place: masks, biases and, on any device of torch, truncation.

Torch is imported when a function is called, so this module works without torch.
Packed masks are expanded with a table of 256 x 8 floats (one byte of the mask gives
eight bounds: +inf keeps a logit, -inf forbids it). The time does not depend on the
mask, because no branch is taken per token.
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING

import numpy as np

from aicirt.contract.abi import RowKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from numpy.typing import NDArray

    from aicirt.contract.messages import Truncation
    from pyaici.client.results import Row

_NEG_INF = float("-inf")
#: lines that `truncate` sorts at a time: each takes some 50 bytes for each token
_LINES = 16
# looking up a member takes as long as copying a row
_BITMASK, _TOKEN = RowKind.BITMASK, RowKind.TOKEN

#: [256, 8] float32: row b holds +inf where bit i of b is set, -inf where it is not.
_BOUNDS: NDArray[np.float32] = np.where(
    np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little"),
    np.float32(np.inf),
    np.float32(-np.inf),
).astype(np.float32)


def apply_masks(
    logits: torch.Tensor | NDArray[np.floating],
    rows: Sequence[Row | None],
    vocab_size: int | None = None,
) -> None:
    """Adds each row's biases to its line of `logits` and sets forbidden tokens to -inf, in place.

    `logits` is [len(rows), N]: a tensor of float16, bfloat16, float32 or float64 on a CPU or CUDA device, or
    a numpy array of float32 or float64. ``rows[i]`` constrains line i, None leaves it alone. The bits of a
    row are read from shared memory, without a copy on a CPU. For CUDA, all rows of the batch are gathered in
    pinned memory, and one asynchronous copy sends them: the call does not wait for the model's pass.

    Models often have more logits than the tokenizer has tokens. Ids beyond the end of a bitmask or
    a dense row are forbidden; with `vocab_size` given, ids from there on are forbidden in every
    line, None and ALL included. A token listed twice in a sparse row gets the sum of its biases.
    Sums that would overflow a half-precision type stop at its largest value.

    Raises ValueError if the number of rows differs from the number of lines, or if a row names a
    token that `logits` does not have.
    """
    if logits.ndim != 2 or logits.shape[0] != len(rows):
        raise ValueError(
            f"logits have shape {tuple(logits.shape)} instead of [{len(rows)}, N], for as many rows"
        )
    num_logits = logits.shape[1]
    for row in rows:
        if row is not None:
            _check_tokens(row, num_logits)
    if vocab_size is not None and vocab_size < num_logits:
        logits[:, vocab_size:] = _NEG_INF
    if isinstance(logits, np.ndarray):
        _apply_to_lines(logits, rows)
    elif logits.device.type == "cpu":
        _apply_on_cpu(logits, rows)
    else:
        _apply_batched(logits, rows)


def _check_tokens(row: Row, num_logits: int) -> None:
    """Raises ValueError for a token out of range: on CUDA such an index destroys the CUDA context."""
    largest = -1
    if row.kind == RowKind.TOKEN:
        largest = row.token
        if largest < 0:
            raise ValueError(f"a TOKEN row names token {largest}")
    elif row.kind == RowKind.SPARSE:
        assert row.tokens is not None
        largest = int(row.tokens.max(initial=0)) if len(row.tokens) else -1
    if largest >= num_logits:
        raise ValueError(f"a {row.kind.name} row names token {largest}, but there are {num_logits} logits")


# -- CPU: one line at a time, so that it stays in the cache ---------------------------------


def _apply_to_lines(logits: NDArray[np.floating], rows: Sequence[Row | None]) -> None:
    for line, row in zip(logits, rows, strict=True):
        if row is not None and row.kind != RowKind.ALL:
            apply_row(line, row)


def _apply_on_cpu(logits: torch.Tensor, rows: Sequence[Row | None]) -> None:
    if logits.element_size() >= 4:
        # converts the batch once: after a forward pass torch's indexing takes as long as a mask
        _apply_to_lines(logits.numpy(), rows)
        return
    import torch

    # numpy has no bfloat16 and is slow in float16
    for half, row in zip(logits, rows, strict=True):
        if row is not None and row.kind != RowKind.ALL:
            wide = half.float()
            apply_row(wide.numpy(), row)
            if row.kind in (RowKind.SPARSE, RowKind.DENSE):
                wide.clamp_(max=torch.finfo(half.dtype).max)
            half.copy_(wide)


def apply_row(x: NDArray[np.floating], row: Row) -> None:
    """Does the same as `apply_masks` for one float32 or float64 line [N], in place, without torch.

    The row's tokens must be below N.
    """
    if row.kind == RowKind.BITMASK:
        assert row.bits is not None
        bounds = _bounds(row.bits)
        n = min(len(bounds), len(x))
        np.minimum(x[:n], bounds[:n], out=x[:n])
        x[n:] = _NEG_INF
    elif row.kind == RowKind.TOKEN:
        kept = x[row.token]
        x.fill(_NEG_INF)
        x[row.token] = kept
    elif row.kind == RowKind.SPARSE:
        assert row.tokens is not None and row.bias is not None
        if row.default == _NEG_INF:
            kept_values = x[row.tokens]
            x.fill(_NEG_INF)
            x[row.tokens] = kept_values
        np.add.at(x, row.tokens, row.bias)
    elif row.kind == RowKind.DENSE:
        assert row.bias is not None
        n = min(len(row.bias), len(x))
        x[:n] += row.bias[:n]
        x[n:] = _NEG_INF


def count_allowed(row: Row, vocab_size: int) -> int:
    """Returns how many of the first `vocab_size` tokens a row allows, whatever their logits."""
    if row.kind == RowKind.BITMASK:
        assert row.bits is not None
        bits = np.unpackbits(row.bits.view(np.uint8), count=vocab_size, bitorder="little")
        return int(np.count_nonzero(bits))
    if row.kind == RowKind.TOKEN:
        return int(row.token < vocab_size)
    if row.kind == RowKind.SPARSE:
        assert row.tokens is not None and row.bias is not None
        known = row.tokens < vocab_size
        listed, forbidden = row.tokens[known], row.tokens[known & (row.bias == _NEG_INF)]
        rest = vocab_size if row.default == 0 else len(np.unique(listed))
        return rest - len(np.unique(forbidden))
    if row.kind == RowKind.DENSE:
        assert row.bias is not None
        return int(np.count_nonzero(row.bias[:vocab_size] > _NEG_INF))
    return vocab_size


def _bounds(bits: NDArray[np.uint32]) -> NDArray[np.float32]:
    """Returns the bounds of each token, in a buffer that this thread's next call reuses: the system would
    have to clear new memory first."""
    nbytes = 4 * len(bits)
    if len(_scratch.__dict__.get("index", ())) != nbytes:
        _scratch.index = np.empty(nbytes, np.intp)
        _scratch.bounds = np.empty((nbytes, 8), np.float32)
    _scratch.index[:] = bits.view(np.uint8)
    _BOUNDS.take(_scratch.index, axis=0, out=_scratch.bounds, mode="clip")
    flat: NDArray[np.float32] = _scratch.bounds.reshape(-1)
    return flat


_scratch = threading.local()


# -- CUDA: one copy and a few kernels for the whole batch -------------------------------------


def _apply_batched(logits: torch.Tensor, rows: Sequence[Row | None]) -> None:
    """Applies rows on any device; the number of copies and kernels does not grow with the batch."""
    import torch

    biased = [
        i for i, row in enumerate(rows) if row is not None and row.kind in (RowKind.SPARSE, RowKind.DENSE)
    ]
    count, num_logits = logits.shape
    # one buffer has the packed masks, then the biases, then the numbers of the lines with biases
    words = (num_logits + 31) // 32
    masks_end = 0
    if any(row is not None and row.kind in (RowKind.BITMASK, RowKind.TOKEN) for row in rows):
        masks_end = count * words
    biases_end = masks_end + len(biased) * num_logits
    end = biases_end + len(biased)
    if end == 0:
        return
    staging = _staging(logits.device)
    host = staging.take(end)
    if masks_end:
        for line, row in zip(host[:masks_end].reshape(count, words), rows, strict=True):
            pack_row(line, row)
    if biased:
        lines = host[masks_end:biases_end].view(np.float32).reshape(len(biased), num_logits)
        _write_biases(lines, [rows[i] for i in biased])
        host[biases_end:] = biased
    sent = staging.copy_to_device(end)
    if masks_end:
        forbid_packed(logits, sent[:masks_end].view(count, words))
    if biased:
        bias = sent[masks_end:biases_end].view(torch.float32)
        _add_biases(logits, bias.view(len(biased), num_logits), sent[biases_end:])


def pack_row(words: NDArray[np.uint32], row: Row | None) -> None:
    """Writes a row without biases as a bitmask: bit t & 31 of word t >> 5 is token t."""
    kind = None if row is None else row.kind
    if kind == _BITMASK:
        assert row is not None and row.bits is not None
        n = len(row.bits)
        words[:n] = row.bits[: len(words)]
        words[n:] = 0
    elif kind == _TOKEN:
        assert row is not None
        words[:] = 0
        words[row.token >> 5] = np.uint32(1 << (row.token & 31))
    else:
        words[:] = 0xFFFFFFFF


def forbid_packed(logits: torch.Tensor, packed: torch.Tensor) -> None:
    """Sets to -inf what bitmasks forbid. `logits`: [B, N]; `packed`: int32 [B, ceil(N / 32)]."""
    import torch

    count, num_logits = logits.shape
    shifts = torch.arange(8, dtype=torch.uint8, device=logits.device)
    bits = (packed.view(torch.uint8).view(count, -1, 1) >> shifts) & 1
    logits.masked_fill_(bits.view(count, -1)[:, :num_logits] == 0, _NEG_INF)


def _write_biases(host: NDArray[np.float32], rows: Sequence[Row | None]) -> None:
    """Writes the biases of sparse and dense rows to `host` [len(rows), N]."""
    for line, row in zip(host, rows, strict=True):
        assert row is not None and row.bias is not None
        if row.kind == RowKind.DENSE:
            n = min(len(row.bias), len(line))
            line[:n] = row.bias[:n]
            line[n:] = _NEG_INF
        else:
            assert row.tokens is not None
            line.fill(row.default)
            line[row.tokens] = 0
            np.add.at(line, row.tokens, row.bias)


def _add_biases(logits: torch.Tensor, bias: torch.Tensor, which: torch.Tensor) -> None:
    """Adds `bias`, float32 [K, N], to the lines `which`, int32 [K]."""
    import torch

    wide = logits.index_select(0, which).to(torch.promote_types(logits.dtype, torch.float32))
    wide += bias
    wide.clamp_(max=torch.finfo(logits.dtype).max)
    logits.index_copy_(0, which.long(), wide.to(logits.dtype))


class _Staging:
    """A host buffer (pinned for CUDA) that rows pass through on their way to one device."""

    def __init__(self, device: torch.device) -> None:
        import torch

        self._device = device
        self._buffer = torch.empty(0, dtype=torch.int32)
        self._sent: torch.Event | None = torch.Event(device) if device.type == "cuda" else None

    def take(self, words: int) -> NDArray[np.uint32]:
        """Returns a uint32 [words] view to fill; waits until the last copy from the buffer is done."""
        import torch

        if self._sent is not None:
            self._sent.synchronize()
        if self._buffer.numel() < words:
            self._buffer = torch.empty(words, dtype=torch.int32, pin_memory=self._sent is not None)
        view: NDArray[np.uint32] = self._buffer[:words].numpy().view(np.uint32)
        return view

    def copy_to_device(self, words: int) -> torch.Tensor:
        """Returns the first `words` words as int32 on the device; on CUDA the copy is asynchronous."""
        import torch

        if self._sent is None:
            return self._buffer[:words].to(self._device, copy=True)
        with torch.cuda.device(self._device):
            on_device = self._buffer[:words].to(self._device, non_blocking=True)
            self._sent.record()
        return on_device


_stagings = threading.local()


def _staging(device: torch.device) -> _Staging:
    """Returns this thread's staging buffer for a device: two threads never fill the same buffer."""
    found: dict[torch.device, _Staging] = _stagings.__dict__.setdefault("by_device", {})
    if device not in found:
        found[device] = _Staging(device)
    return found[device]


def truncate(scaled: torch.Tensor, options: Sequence[Truncation]) -> None:
    """Sets the tokens to -inf that options for truncation (docs/abi.md) leave out, in place.

    `scaled`: float32 [len(options), N], logits after masks and biases, divided by the sampling temperature;
    each line has a token that is not -inf, and none that is +inf. ``options[i]`` is for line i: with a number
    that is 0, it keeps all tokens, and always at least one. Ties rank by token.
    """
    for start in range(0, len(options), _LINES):
        lines = scaled[start : start + _LINES]
        lines.masked_fill_(_left_out(lines, options[start : start + _LINES]), -math.inf)


def _left_out(scaled: torch.Tensor, options: Sequence[Truncation]) -> torch.Tensor:
    import torch

    def column(name: str, otherwise: float) -> torch.Tensor:
        numbers = [getattr(each, name) or otherwise for each in options]
        return torch.tensor(numbers, dtype=torch.float64, device=scaled.device)[:, None]

    values, order = scaled.sort(dim=1, descending=True, stable=True)
    below = (values - values[:, :1]).double()
    if any(each.top_n_sigma for each in options):
        allowed = below > -math.inf
        count = allowed.sum(dim=1, keepdim=True)
        mean = below.where(allowed, 0).sum(dim=1, keepdim=True) / count
        variance = (below - mean).square().where(allowed, 0).sum(dim=1, keepdim=True) / count
        least = (-column("top_n_sigma", math.inf) * variance.sqrt()).nan_to_num(nan=-math.inf)
        below.masked_fill_(below < least, -math.inf)
    below.masked_fill_(below < column("min_p", 0).log(), -math.inf)
    rank = torch.arange(below.shape[1], device=scaled.device)
    weights = below.exp() * (rank < column("top_k", math.inf))
    if any(each.typical_p for each in options):
        possible = weights > 0
        total = weights.sum(dim=1, keepdim=True)
        mean = (weights * below.where(possible, 0)).sum(dim=1, keepdim=True) / total
        far = (below - mean).abs().where(possible, math.inf)
        nearest = far.sort(dim=1, stable=True).indices
        kept = _until(weights.gather(1, nearest), column("typical_p", math.inf))
        weights *= torch.zeros_like(kept).scatter(1, nearest, kept)
    kept = _until(weights, column("top_p", math.inf)) & (weights > 0)
    return torch.zeros_like(kept).scatter(1, order, ~kept)


def _until(weights: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
    """Returns which weights [B, N] come until their sum reaches a share [B, 1] of all; 1 or more: all."""
    before = weights.cumsum(dim=1) - weights
    return (before < share * weights.sum(dim=1, keepdim=True)) | (share >= 1)
