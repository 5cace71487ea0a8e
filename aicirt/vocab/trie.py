"""The prefix tree of all tokens as one array in depth-first order (docs/vocabulary.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from aicirt.errors import VocabularyError
from aicirt.vocab.layout import NO_TOKEN, NODE_WORDS
from aicirt.vocab.signatures import OTHER, edge_bits


@dataclass(frozen=True, slots=True)
class Trie:
    """Nodes are uint32 [N + 1, 4], the last one a sentinel."""

    nodes: NDArray[np.uint32]
    #: uint32 [K]: the tokens in the order of their nodes
    order: NDArray[np.uint32]
    #: uint32 [D, 2]: (a token without a node, the token with the same bytes that has one)
    duplicates: NDArray[np.uint32]


def build_trie(tokens: Sequence[bytes], ids: Sequence[int]) -> Trie:
    """Makes the trie of ``tokens[i] for i in ids``, all of 1 to 254 bytes.

    Of several tokens with equal bytes the one listed first gets the node.
    Raises VocabularyError if there are more nodes than 24 bits can count.
    """
    ids = sorted(ids, key=tokens.__getitem__)
    data = np.frombuffer(b"".join([tokens[i] for i in ids]), np.uint8)
    lengths = np.fromiter((len(tokens[i]) for i in ids), np.int64, len(ids))
    starts = np.cumsum(lengths) - lengths
    common = _common_prefixes(data, starts, lengths)
    token_ids = np.array(ids, np.uint32)

    # After sorting only a duplicate adds no byte to its predecessor.
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
    # A subtree that starts inside a character is nothing well-formed by itself.
    nodes[1:total, 2] |= middle[at].astype(np.uint32) << np.uint32(OTHER)
    nodes[1:, 3] = np.cumsum(has_token)
    nodes[1:total, 3] |= _heights(depth, size).astype(np.uint32) << np.uint32(24)
    return Trie(nodes, nodes[:total, 0][has_token] & np.uint32(NO_TOKEN), duplicates)


def _common_prefixes(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.int64]:
    """int64 [n]: bytes that token i shares with token i - 1."""
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
    """int64 [N - 1]: nodes in the subtree of nodes 1 .. N - 1, themselves included.

    The subtree of a node at depth d ends where the next token comes that shares less than d bytes.
    """
    end = np.append(base, total)
    position = np.arange(1, total)
    size = np.empty(total - 1, np.int64)
    by_depth = np.argsort(depth, kind="stable")
    bounds = np.append(np.flatnonzero(np.diff(depth[by_depth], prepend=0)), total - 1)
    breaks = np.arange(len(common))
    # From the deepest level up, the tokens that break a subtree get fewer.
    for low, high in zip(bounds[-2::-1], bounds[:0:-1], strict=True):
        level = by_depth[low:high]
        breaks = breaks[common[breaks] < depth[level[0]]]
        following = np.append(breaks, len(base))[np.searchsorted(breaks, owner[level], side="right")]
        size[level] = end[following] - position[level]
    return size


def _subtree_bits(
    edges: NDArray[np.uint32], depth: NDArray[np.int64], size: NDArray[np.int64]
) -> NDArray[np.uint32]:
    """uint32 [N - 1]: the bits of all edges into and below nodes 1 .. N - 1."""
    result, padded = edges.copy(), np.append(edges, np.uint32(0))
    for level, ranges in _inner_levels(depth, size):
        result[level] = np.bitwise_or.reduceat(padded, ranges)[::2]
    return result


def _heights(depth: NDArray[np.int64], size: NDArray[np.int64]) -> NDArray[np.int64]:
    """int64 [N - 1]: bytes of the longest way from the edge into nodes 1 .. N - 1 downwards."""
    deepest, padded = depth.copy(), np.append(depth, 0)
    for level, ranges in _inner_levels(depth, size):
        deepest[level] = np.maximum.reduceat(padded, ranges)[::2]
    return deepest - depth + 1


def _inner_levels(
    depth: NDArray[np.int64], size: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """For each depth its nodes with children, and where their subtrees begin and end by turns."""
    inner = np.flatnonzero(size > 1)
    by_depth = inner[np.argsort(depth[inner], kind="stable")]
    bounds = np.append(np.flatnonzero(np.diff(depth[by_depth], prepend=0)), len(by_depth))
    for low, high in pairwise(bounds):
        level = by_depth[low:high]  # subtrees of one depth do not overlap and come in order
        yield level, np.stack([level, level + size[level]], axis=1).reshape(-1)
