"""The part of a controller's row that a grammar mask cannot express, as it travels to vLLM's workers.

The scheduler sets the attribute `ROWS` of a GrammarOutput: for the ids of some requests, a `WorkerRow` for
each position of the pass (after no draft, after the first draft, ...). Workers set the attribute `MASS` of
their ModelRunnerOutput, even if it is empty: for the ids of requests that asked for it, float32 [positions],
the natural logarithm of the probability of the allowed tokens. For the same requests, the attribute
`LOGPROBS` has the log-probabilities of tokens, as `Logprobs`.

This module imports neither vLLM nor torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aicirt.contract.abi import RowKind
from pyaici.engines.sampling import HOTTEST

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from aicirt.contract.messages import Truncation
    from pyaici.client.results import Row


#: names of the attributes
ROWS, MASS, LOGPROBS = "aici_rows", "aici_mass", "aici_logprobs"
#: vLLM treats lower temperatures as 0 in one place and divides by them in another
GREEDY_BELOW = 1e-5


class WorkerRow(NamedTuple):
    """The work of a worker at one position, beside applying the mask."""

    #: 0 = greedy; None = the request's own
    temperature: float | None = None
    #: int64 [n], the tokens of `biases`; None if `biases` lists every token
    tokens: NDArray[np.int64] | None = None
    #: float32, finite: added to the logits after the mask and before the request's own options
    biases: NDArray[np.float32] | None = None
    #: whether to report the probability of the allowed tokens, for all positions of the request. It is
    #: measured before the biases, at the request's temperature in this step, or at 1 if that is 0
    mass: bool = False
    #: with `mass`: number of most likely tokens to report
    top: int = 0
    #: which tokens are left out, in place of the request's own options; None = those hold. If a position of
    #: a request has it, all positions have it
    truncation: Truncation | None = None

    @property
    def changes(self) -> bool:
        """Whether the row has an effect on the sampled token."""
        effects = self.temperature, self.biases, self.truncation
        return any(each is not None for each in effects)


class Logprobs(NamedTuple):
    """Natural log-probabilities at each position of a request in a pass.

    They describe the model's own distribution, before the mask and the biases, at the temperature of the
    request in this step, or at 1 if that is 0.
    """

    #: float32 [positions], of the sampled token or the accepted draft; undefined after a rejected draft
    sampled: NDArray[np.float32]
    #: int64 [positions, n], the most likely tokens, at least as many as asked for
    tokens: NDArray[np.int64]
    #: float32 [positions, n], their log-probabilities, largest first
    values: NDArray[np.float32]


def make_row(row: Row, *, mass: bool, own: Truncation | None = None) -> WorkerRow:
    """Returns what the mask of a controller's row does not express. Copies the arrays.

    `own`: the request's options for leaving out tokens; None if no row of this pass has such options.
    """
    temperature = row.temperature
    if temperature is not None:
        temperature = 0.0 if temperature < GREEDY_BELOW else min(temperature, HOTTEST)
    truncation = own
    if own is not None and row.truncation is not None:
        truncation = row.truncation.over(own)
    tokens: NDArray[np.int64] | None = None
    biases: NDArray[np.float32] | None = None
    if row.kind in (RowKind.SPARSE, RowKind.DENSE):
        assert row.bias is not None
        finite = row.bias > -np.inf
        if row.kind == RowKind.DENSE:
            biases = np.where(finite, row.bias, np.float32(0))
        else:
            assert row.tokens is not None
            tokens, biases = row.tokens[finite].astype(np.int64), row.bias[finite]
        if not biases.any():
            tokens = biases = None
    return WorkerRow(temperature, tokens, biases, mass, row.top_logprobs if mass else 0, truncation)


def fill_mask(row: Row, words: NDArray[np.int32]) -> None:
    """Writes the mask of tokens that a SPARSE or DENSE row allows.

    `words`: int32 [ceil(V / 32)], contiguous; bit t & 31 of word t >> 5 is token t.
    """
    assert row.bias is not None
    if row.kind == RowKind.DENSE:
        bits = np.packbits(row.bias > -np.inf, bitorder="little")
        octets = words.view(np.uint8)
        octets[: len(bits)] = bits[: len(octets)]
        octets[len(bits) :] = 0
        return
    assert row.tokens is not None
    words[:] = 0 if row.default == -np.inf else -1
    if row.default == -np.inf:
        _set_bits(words, row.tokens, value=True)
    _set_bits(words, row.tokens[row.bias == -np.inf], value=False)


def _set_bits(words: NDArray[np.int32], tokens: NDArray[np.uint32], *, value: bool) -> None:
    places, bits = tokens >> 5, np.left_shift(np.uint32(1), tokens & 31, dtype=np.uint32)
    if value:
        np.bitwise_or.at(words.view(np.uint32), places, bits)
    else:
        np.bitwise_and.at(words.view(np.uint32), places, ~bits)
