"""Chooses what a cache evicts that several owners share, so that no owner can push out the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import TypeVar

Key = TypeVar("Key")


def to_evict(entries: Iterable[tuple[Key, Hashable, int]]) -> Key:
    """Returns the least recently used entry of the owner with the largest total of sizes.

    `entries`: (key, owner, size), the least recently used first. The last stays unless it is the only one.
    """
    listed = list(entries)
    totals: Counter[Hashable] = Counter()
    for _, owner, size in listed:
        totals[owner] += size
    oldest = {owner: key for key, owner, _ in reversed(listed[:-1] or listed)}
    # of equal owners, the one with the least recently used entry
    return oldest[max((owner for _, owner, _ in listed if owner in oldest), key=totals.__getitem__)]
