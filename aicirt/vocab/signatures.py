"""Which kinds of bytes occur in a token: the signatures of docs/vocabulary.md."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

#: bit of multi-byte characters of well-formed UTF-8, and of all other bytes from 0x80 on
WELL_FORMED: Final = 30
OTHER: Final = 31

#: One ASCII class a line; bytes that no line names are in the last class. Letters that make
#: hexadecimal digits are apart, and so is every character that constraints often stop at.
_CLASSES: Final = (
    b"abcdef",
    b"ghijklmnopqrstuvwxyz",
    b"ABCDEF",
    b"GHIJKLMNOPQRSTUVWXYZ",
    b"0123456789",
    b" ",
    b"\n",
    b"\t",
    bytes(range(0x20)) + b"\x7f",
    b'"',
    b"'",
    b"\\",
    b"/",
    b"<",
    b">",
    b"{",
    b"}",
    b"[",
    b"]",
    b"(",
    b")",
    b",",
    b".",
    b"-",
    b"_",
    b":",
    b";",
    b"`",
    b"*",
    b"",
)
NUM_CLASSES: Final = len(_CLASSES)

_LOWER: Final = 0b11
_LETTERS: Final = 0b1111
_LETTERS_DIGITS: Final = 0b11111
_SPACE: Final = 1 << _CLASSES.index(b" ")
_WORD: Final = _LETTERS_DIGITS | 1 << _CLASSES.index(b"_")
_UTF8: Final = 1 << 30
#: signatures of sets that constraints often allow and that have few classes: letters and digits
SLICES: Final = (
    _LOWER,
    _LETTERS,
    _LETTERS_DIGITS,
    _WORD,
    _LOWER | _SPACE,
    _LETTERS | _SPACE,
    _LETTERS_DIGITS | _SPACE,
    _WORD | _SPACE,
    _WORD | _UTF8,
    _WORD | _SPACE | _UTF8,
)

# States of the automaton that tells where a byte stands in a character: at its start, or how
# many continuation bytes are missing; the last four have a narrower range for the next one.
_START, _ONE, _TWO, _THREE, _E0, _ED, _F0, _F4 = range(8)
_LEADS: Final = (
    (0xC2, 0xDF, _ONE),
    (0xE0, 0xE0, _E0),
    (0xE1, 0xEC, _TWO),
    (0xED, 0xED, _ED),
    (0xEE, 0xEF, _TWO),
    (0xF0, 0xF0, _F0),
    (0xF1, 0xF3, _THREE),
    (0xF4, 0xF4, _F4),
)
_CONTINUATIONS: Final = {
    _ONE: (0x80, 0xBF, _START),
    _TWO: (0x80, 0xBF, _ONE),
    _THREE: (0x80, 0xBF, _TWO),
    _E0: (0xA0, 0xBF, _ONE),
    _ED: (0x80, 0x9F, _ONE),
    _F0: (0x90, 0xBF, _TWO),
    _F4: (0x80, 0x8F, _TWO),
}


def byte_classes() -> NDArray[np.uint8]:
    """uint8 [256]: the class of each byte below 128; 0 from there on."""
    classes = np.zeros(256, np.uint8)
    classes[:128] = NUM_CLASSES - 1
    for number in range(NUM_CLASSES - 1, -1, -1):  # earlier lines win
        for byte in _CLASSES[number]:
            classes[byte] = number
    return classes


@lru_cache(maxsize=1)
def _automaton() -> tuple[NDArray[np.uint8], NDArray[np.uint32]]:
    """(next state, signature bits) by (state * 256 + byte)."""
    following = np.zeros((8, 256), np.uint8)
    bits = np.zeros((8, 256), np.uint32)
    bits[:, :128] = np.uint32(1) << byte_classes()[:128].astype(np.uint32)
    bits[:, 128:] = 1 << OTHER
    for low, high, state in _LEADS:
        following[:, low : high + 1] = state
        bits[:, low : high + 1] = 1 << WELL_FORMED
    # Anything but a continuation leaves a broken character behind.
    bits[1:] |= np.uint32(1 << OTHER)
    for state, (low, high, after) in _CONTINUATIONS.items():
        following[state, low : high + 1] = after
        bits[state, low : high + 1] = 1 << WELL_FORMED
    return following.reshape(-1), bits.reshape(-1)


def edge_bits(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> tuple[NDArray[np.uint32], NDArray[np.bool_]]:
    """Signature bits of every byte of every token.

    ``data`` is uint8 [n], token i being ``data[starts[i] : starts[i] + lengths[i]]``. Returns
    uint32 [n], and bool [n]: does the byte come in the middle of a character?
    """
    following, bits = _automaton()
    result = np.zeros(len(data), np.uint32)
    middle = np.zeros(len(data), np.bool_)
    state = np.zeros(len(starts), np.uint16)
    active = np.flatnonzero(lengths > 0)
    depth = 0
    while len(active):
        at = starts[active] + depth
        key = state[active] * np.uint16(256) + data[at]
        result[at] = bits[key]
        middle[at] = state[active] != _START
        state[active] = following[key]
        depth += 1
        active = active[lengths[active] > depth]
    return result, middle
