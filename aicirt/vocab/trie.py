"""The prefix tree of all tokens as one array in depth-first order, and the signatures of its nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from aicirt.contract.errors import VocabularyError
from aicirt.vocab.layout import NO_TOKEN, NODE_WORDS

#: signature bits: multi-byte characters of well-formed UTF-8; all other bytes from 0x80 on
WELL_FORMED: Final = 30
OTHER: Final = 31

#: One ASCII class per line; ASCII bytes on no line are in the last class. Hexadecimal letters have
#: their own classes, and so has each character at which constraints often stop.
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
#: signatures of sets that constraints often allow and that have few classes: mainly letters and digits
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

# States of the automaton that tracks the position in a character: at its start, or the number of
# missing continuation bytes; in the last four states the next byte has a narrower range.
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
    """Returns the class of each byte, uint8 [256]; 0 for bytes from 128 on."""
    classes = np.zeros(256, np.uint8)
    classes[:128] = NUM_CLASSES - 1
    for number in range(NUM_CLASSES - 1, -1, -1):  # earlier lines win
        for byte in _CLASSES[number]:
            classes[byte] = number
    return classes


@lru_cache(maxsize=1)
def _automaton() -> tuple[NDArray[np.uint8], NDArray[np.uint32]]:
    """Returns tables of the next state and of the signature bits, indexed by state * 256 + byte."""
    following = np.zeros((8, 256), np.uint8)
    bits = np.zeros((8, 256), np.uint32)
    bits[:, :128] = np.uint32(1) << byte_classes()[:128].astype(np.uint32)
    bits[:, 128:] = 1 << OTHER
    for low, high, state in _LEADS:
        following[:, low : high + 1] = state
        bits[:, low : high + 1] = 1 << WELL_FORMED
    # Any other byte than a continuation leaves a broken character behind.
    bits[1:] |= np.uint32(1 << OTHER)
    for state, (low, high, after) in _CONTINUATIONS.items():
        following[state, low : high + 1] = after
        bits[state, low : high + 1] = 1 << WELL_FORMED
    return following.reshape(-1), bits.reshape(-1)


def edge_bits(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> tuple[NDArray[np.uint32], NDArray[np.bool_]]:
    """Computes the signature bits of every byte of every token.

    ``data`` is uint8 [n]; token i is ``data[starts[i] : starts[i] + lengths[i]]``. Returns the bits,
    uint32 [n], and whether each byte comes in the middle of a character, bool [n].
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


@dataclass(frozen=True, slots=True)
class Trie:
    """A prefix tree. Its nodes are uint32 [N + 1, 4]; the last one is a sentinel."""

    nodes: NDArray[np.uint32]
    #: uint32 [K]: the tokens in node order
    order: NDArray[np.uint32]
    #: uint32 [D, 2]: (a token without a node, the token with the same bytes that has one)
    duplicates: NDArray[np.uint32]


def build_trie(tokens: Sequence[bytes], ids: Sequence[int]) -> Trie:
    """Builds the trie of ``tokens[i] for i in ids``, each of 1 to 254 bytes.

    Of several tokens with equal bytes the first in `ids` gets the node.
    Raises VocabularyError if there are more nodes than 24 bits can count.
    """
    ids = sorted(ids, key=tokens.__getitem__)
    data = np.frombuffer(b"".join([tokens[i] for i in ids]), np.uint8)
    lengths = np.fromiter((len(tokens[i]) for i in ids), np.int64, len(ids))
    starts = np.cumsum(lengths) - lengths
    common = _common_prefixes(data, starts, lengths)
    token_ids = np.array(ids, np.uint32)

    # After sorting, only a duplicate adds no byte to its predecessor.
    fresh = lengths > common
    holder = token_ids[fresh][np.cumsum(fresh) - 1]
    duplicates = np.stack([token_ids, holder], axis=1)[~fresh]
    token_ids, lengths, starts, common = token_ids[fresh], lengths[fresh], starts[fresh], common[fresh]

    added = lengths - common
    base = 1 + np.cumsum(added) - added  # the first node that a token adds; node 0 is the root
    total = 1 + int(added.sum())
    if total >= NO_TOKEN:
        raise VocabularyError(f"the tokens make {total} trie nodes; the format holds {NO_TOKEN - 1}")
    owner = np.repeat(np.arange(len(added)), added)
    depth = common[owner] + np.arange(1, total) - base[owner] + 1
    at = starts[owner] + depth - 1
    size = _subtree_sizes(depth, owner, base, common, total)
    edges, middle = edge_bits(data, starts, lengths)

    nodes = np.zeros((total + 1, NODE_WORDS), np.uint32)
    nodes[:, 0] = NO_TOKEN
    nodes[base + added - 1, 0] = token_ids
    has_token = nodes[:total, 0] != NO_TOKEN
    nodes[1:total, 0] |= data[at].astype(np.uint32) << np.uint32(24)
    nodes[0, 1] = total
    nodes[1:total, 1] = size.astype(np.uint32) | depth.astype(np.uint32) << np.uint32(24)
    nodes[1:total, 2] = _subtree_bits(edges[at], depth, size)
    nodes[0, 2] = np.bitwise_or.reduce(nodes[:total, 2])
    # A subtree that starts inside a character is not well-formed by itself.
    nodes[1:total, 2] |= middle[at].astype(np.uint32) << np.uint32(OTHER)
    nodes[1:, 3] = np.cumsum(has_token)
    nodes[1:total, 3] |= _heights(depth, size).astype(np.uint32) << np.uint32(24)
    return Trie(nodes, nodes[:total, 0][has_token] & np.uint32(NO_TOKEN), duplicates)


def _common_prefixes(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Returns the number of leading bytes that token i shares with token i - 1, int64 [n]."""
    common = np.zeros(len(starts), np.int64)
    active = np.arange(1, len(starts))
    depth = 0
    while len(active):
        active = active[(lengths[active] > depth) & (lengths[active - 1] > depth)]
        active = active[data[starts[active] + depth] == data[starts[active - 1] + depth]]
        depth += 1
        common[active] = depth
    return common


def _subtree_sizes(
    depth: NDArray[np.int64],
    owner: NDArray[np.intp],
    base: NDArray[np.int64],
    common: NDArray[np.int64],
    total: int,
) -> NDArray[np.int64]:
    """Returns the number of nodes in the subtree of nodes 1 .. N - 1, including themselves, int64 [N - 1].

    The subtree of a node at depth d ends at the next token that shares less than d bytes.
    """
    end = np.append(base, total)
    position = np.arange(1, total)
    size = np.empty(total - 1, np.int64)
    by_depth = np.argsort(depth, kind="stable")
    bounds = np.append(np.flatnonzero(np.diff(depth[by_depth], prepend=0)), total - 1)
    breaks = np.arange(len(common))
    # From the deepest level upwards, fewer and fewer tokens end a subtree.
    for low, high in zip(bounds[-2::-1], bounds[:0:-1], strict=True):
        level = by_depth[low:high]
        breaks = breaks[common[breaks] < depth[level[0]]]
        following = np.append(breaks, len(base))[np.searchsorted(breaks, owner[level], side="right")]
        size[level] = end[following] - position[level]
    return size


def _subtree_bits(
    edges: NDArray[np.uint32], depth: NDArray[np.int64], size: NDArray[np.int64]
) -> NDArray[np.uint32]:
    """Returns the bits of all edges into and below nodes 1 .. N - 1, uint32 [N - 1]."""
    result, padded = edges.copy(), np.append(edges, np.uint32(0))
    for level, ranges in _inner_levels(depth, size):
        result[level] = np.bitwise_or.reduceat(padded, ranges)[::2]
    return result


def _heights(depth: NDArray[np.int64], size: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the heights of nodes 1 .. N - 1, int64 [N - 1].

    A height is the number of bytes on the longest path downwards, including the edge into the node.
    """
    deepest, padded = depth.copy(), np.append(depth, 0)
    for level, ranges in _inner_levels(depth, size):
        deepest[level] = np.maximum.reduceat(padded, ranges)[::2]
    return deepest - depth + 1


def _inner_levels(
    depth: NDArray[np.int64], size: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Yields, for each depth, the nodes with children, and alternating begins and ends of their subtrees."""
    inner = np.flatnonzero(size > 1)
    by_depth = inner[np.argsort(depth[inner], kind="stable")]
    bounds = np.append(np.flatnonzero(np.diff(depth[by_depth], prepend=0)), len(by_depth))
    for low, high in pairwise(bounds):
        level = by_depth[low:high]  # subtrees at one depth do not overlap, and are in order
        yield level, np.stack([level, level + size[level]], axis=1).reshape(-1)
