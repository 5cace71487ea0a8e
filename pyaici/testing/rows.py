"""Which tokens a row allows."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from pyaici.masks import apply_row
from pyaici.step import Row


def allowed_by(row: Row, vocab_size: int) -> NDArray[np.bool_]:
    """[vocab_size]: the tokens that it does not forbid."""
    logits = np.zeros(vocab_size)
    apply_row(logits, row)
    allowed: NDArray[np.bool_] = np.isfinite(logits)
    return allowed


def digest_of(allowed: NDArray[np.bool_]) -> str:
    """16 hexadecimal digits that differ for different sets: BLAKE2b of the bits, packed from token 0 on."""
    return hashlib.blake2b(np.packbits(allowed, bitorder="little").tobytes(), digest_size=8).hexdigest()
