"""A cache that several owners share evicts from the owner with the most."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aicirt.contract.owners import to_evict


def test_owner_with_the_most_loses_the_oldest_entry() -> None:
    entries = [("a1", "a", 1), ("b1", "b", 1), ("b2", "b", 1), ("a2", "a", 1), ("b3", "b", 1)]
    assert to_evict(entries) == "b1"
    assert to_evict([("a1", "a", 9), *entries[1:]]) == "a1", "sizes count, not numbers"


def test_newest_entry_stays_unless_it_is_alone() -> None:
    assert to_evict([("a", "a", 1), ("b", "b", 1), ("c", "c", 9)]) == "a"
    assert to_evict([("a", "a", 1), ("b1", "b", 1), ("b2", "b", 1)]) == "b1"
    assert to_evict([("c", "c", 9)]) == "c"


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.integers(1, 8))
def test_no_owner_with_a_fair_share_or_less_loses_anything(owners: list[int], room: int) -> None:
    kept: list[tuple[int, int, int]] = []
    for key, owner in enumerate(owners):
        kept.append((key, owner, 1))
        if len(kept) > room:
            gone = to_evict(kept)
            counts = [sum(own == other for _, own, _ in kept) for other in range(4)]
            (loser,) = [own for one, own, _ in kept if one == gone]
            assert counts[loser] == max(counts[own] for _, own, _ in kept[:-1])
            kept = [entry for entry in kept if entry[0] != gone]
        assert kept[-1][0] == key
