"""Finds the most likely cover: the limit of the conditional distribution as the temperature goes to 0.

At temperature T the probability of a cover is the product of the tempered probabilities of its tokens. As
T goes to 0, the conditional distribution concentrates on the cover with the largest sum of
ln p(token) - ln p(most likely token). Every token can only lower this sum, so a best-first search finds
that cover. Ties are broken arbitrarily. Masking and taking the best token at each step gives another
result: the walk may have to continue from an unlikely history.
"""

from __future__ import annotations

import heapq
import itertools
import math
from dataclasses import replace
from typing import TYPE_CHECKING

from pyaici.cpc import pcas
from pyaici.cpc.cover import Certificate, Cover, dead

if TYPE_CHECKING:
    import numpy as np

    from pyaici.cpc.tree import CoverTree, Node


def most_likely(
    tree: CoverTree, rng: np.random.Generator, budget: int | None = None
) -> tuple[Cover, Certificate]:
    """Returns the cover with the largest sum of weights; evaluates only histories that could lead to it.

    A walk with masks that takes the best token at each step replaces a search that would take more than
    `budget` evaluations; they include those of the walk. Raises DeadPrefixError if there is no cover.
    """
    if not tree.prefix:
        return tree.cover(()), Certificate(0, log_z_lower=0.0, tv_bound=0.0, approximate=False)
    before = tree.session.evaluations
    order = itertools.count()
    #: (-sum of weights, order, node, place): a path to a partial token, or to a covering one (place -1)
    heap: list[tuple[float, int, Node, int]] = []

    def push(node: Node, weight: float) -> None:
        if len(node.covering):
            _add(weight + float(node.log_covering.max()), node, -1)
        for place, partial in enumerate(node.log_partial.tolist()):
            _add(weight + partial, node, place)

    def _add(weight: float, node: Node, place: int) -> None:
        if weight > -math.inf:
            heapq.heappush(heap, (-weight, next(order), node, place))

    kept = 0 if budget is None else pcas.reserve(tree, budget)
    push(tree.root, 0.0)
    while heap:
        minus_weight, _, node, place = heapq.heappop(heap)
        if place < 0:
            cover = tree.cover((*node.history, int(node.covering[node.log_covering.argmax()])))
            evaluations = tree.session.evaluations - before
            return cover, Certificate(evaluations, tv_bound=0.0, approximate=False, calls_prefix=evaluations)
        if node.children[place] is None:
            if budget is not None and (used := tree.session.evaluations - before) >= budget - kept:
                cover, walked = pcas.sample(tree, rng, budget=budget - used)
                evaluations = tree.session.evaluations - before
                return cover, replace(walked, model_evals=evaluations, calls_prefix=evaluations)
            tree.expand([(node, place)])
        child = node.children[place]
        assert child is not None
        push(child, -minus_weight)
    raise dead(tree.prefix, 0)
