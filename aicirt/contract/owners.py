"""Owners: names with a meaning for the runtime, and which owner's entry a cache evicts that several share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import TypeVar

Key = TypeVar("Key")

#: the owner of clients that name none: the operator of the daemon, who also has the bundled controllers
DEFAULT_OWNER = "local"
#: names of owners that may be several people begin with this: a server does not know who they are
ANONYMOUS = "anonymous"


def is_one_person(owner: str) -> bool:
    """Returns whether all sequences of an owner belong to one person."""
    return not owner.startswith(ANONYMOUS)


def to_evict(entries: Iterable[tuple[Key, Hashable, int]]) -> Key:
    """Returns the least recently used entry of the owner with the largest total of sizes.

    So no owner can push the entries of others out of a cache.

    `entries`: (key, owner, size), the least recently used first. The last stays unless it is the only one.
    """
    listed = list(entries)
    totals: Counter[Hashable] = Counter()
    for _, owner, size in listed:
        totals[owner] += size
    oldest = {owner: key for key, owner, _ in reversed(listed[:-1] or listed)}
    # of equal owners, the one with the least recently used entry
    return oldest[max((owner for _, owner, _ in listed if owner in oldest), key=totals.__getitem__)]
