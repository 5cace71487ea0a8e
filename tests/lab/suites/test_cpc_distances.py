"""Distances that the suite `cpc` computes, compared with brute force."""

from __future__ import annotations

import pytest

from lab.suites.cpc import cover_probabilities, masked_distance, share_of
from pyaici.cpc import enumerate_covers
from tests.pyaici.cpc.tiny import VOCAB, brute, conditioned, make, tv


def test_distances_equal_brute_force() -> None:
    for seed in range(8):
        model, session = make(seed)
        vocab = session.trie.vocabulary
        tree = session.tree((2,), b"print")
        enumerate_covers(tree)
        exactly = conditioned(brute(model, vocab, b"print", (2,)))
        assert cover_probabilities(tree) == pytest.approx(exactly)
        assert masked_distance(tree) == pytest.approx(
            tv(exactly, brute(model, vocab, b"print", (2,), masked=True))
        )
        stem = (VOCAB.index(b"pr"), VOCAB.index(b"i"))
        share = sum(p for cover, p in exactly.items() if cover[:-1] == stem)
        assert share_of(tree, stem) == pytest.approx(share) and share_of(tree, (0, 0)) == 0.0
