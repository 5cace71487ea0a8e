"""Splits the work of one step into forward passes with little padding."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")

#: What one more forward pass costs, in tokens: SmolLM2-135M on one CPU thread needs about 30 ms
#: a pass and 2.5 ms a token; a GPU reads all weights in the time of a few hundred tokens.
PASS_COST = {"cpu": 12, "cuda": 256}


def split(rows: Sequence[tuple[T, int]], pass_cost: int) -> list[list[T]]:
    """Groups (row, number of new tokens) so that rows of one group go through one pass.

    The queries of a pass are padded to the longest. A row joins the next shorter ones if the padding
    that this adds costs no more than a pass of its own, `pass_cost` tokens.
    """
    groups: list[list[T]] = []
    width = 0
    for row, count in sorted(rows, key=lambda item: item[1]):
        if groups and len(groups[-1]) * (count - width) <= pass_cost:
            groups[-1].append(row)
        else:
            groups.append([row])
        width = count
    return groups
