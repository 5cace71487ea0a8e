"""Enumerates the covers of a prefix, most likely histories first, until the rest is negligible.

Let F be the mass of the histories that have not been evaluated. Z lies between the mass of the known
covers and that mass plus F. A sample from the known covers is within F / (known + F) of the exact
distribution in total variation. If no history is left, the sample is exact.
"""

from __future__ import annotations

import heapq
import itertools
import math
from dataclasses import replace
from typing import TYPE_CHECKING

from pyaici.cpc import best, pcas
from pyaici.cpc.cover import Certificate, Cover

if TYPE_CHECKING:
    import numpy as np

    from pyaici.cpc.tree import CoverTree, Node

#: Histories that the model evaluates in one batch.
BATCH = 8


def sample(
    tree: CoverTree, rng: np.random.Generator, eps: float = 1e-3, budget: int | None = None
) -> tuple[Cover, Certificate]:
    """Draws one of the known covers once their distribution is within `eps` of the exact one.

    `eps` = 0 enumerates all covers. After `budget` evaluations, draws from the covers known by then, see
    `draw_known`; the certificate's bounds hold in any case. At temperature 0, returns the most likely cover.
    Raises DeadPrefixError if there is no cover.
    """
    if tree.temperature == 0:
        return best.most_likely(tree, rng, budget)
    if not tree.prefix:
        return nothing_to_cover(tree)
    before = tree.session.evaluations
    expand(tree, eps, budget)
    return draw_known(tree, rng, before, 1, budget)


def expand(tree: CoverTree, eps: float = 0.0, budget: int | None = None, batch: int = BATCH) -> None:
    """Evaluates histories, most likely first, until the bound is at most `eps` or `budget` is used up.

    Raises DeadPrefixError if there is no cover.
    """
    before = tree.session.evaluations
    kept = 0 if budget is None else pcas.reserve(tree, budget)
    order = itertools.count()
    heap: list[tuple[float, int, Node, int]] = []

    def push(start: Node, log_mass: float) -> None:
        stack = [(start, log_mass)]
        while stack:
            node, above = stack.pop()
            for place, child in enumerate(node.children):
                below = above + float(node.log_partial[place])
                if child is not None:
                    stack.append((child, below))
                elif below > -math.inf:
                    heapq.heappush(heap, (-below, next(order), node, place))

    push(tree.root, 0.0)
    while heap and (eps == 0 or tv_bound(tree) > eps):
        room = batch
        if budget is not None:
            room = min(batch, left(tree, before, budget, kept))
            if room <= 0:
                return
        popped = [heapq.heappop(heap) for _ in range(min(room, len(heap)))]
        tree.expand([(node, place) for _, _, node, place in popped])
        for minus_mass, _, node, place in popped:
            child = node.children[place]
            assert child is not None
            push(child, -minus_mass)


def tv_bound(tree: CoverTree) -> float:
    """Returns an upper bound of the total variation distance of the known covers from the exact ones."""
    root = tree.root
    return max(0.0, -math.expm1(root.lower - root.upper))


def left(tree: CoverTree, before: int, budget: int, kept: int) -> int:
    """Returns how many of `budget` evaluations a search may still make.

    `before`: evaluations of the session when the search began. `kept`: how many to keep, while no cover is
    known, for the walk that `draw_known` may need (`pcas.reserve`).
    """
    unknown = tree.root.lower == -math.inf  # evaluates the root first, which counts
    return budget - (tree.session.evaluations - before) - (kept if unknown else 0)


def nothing_to_cover(tree: CoverTree) -> tuple[Cover, Certificate]:
    """Returns the result for an empty prefix: a cover without tokens, and no model evaluation."""
    return tree.cover(()), Certificate(0, log_z_lower=0.0, tv_bound=0.0, approximate=False)


def draw_known(
    tree: CoverTree, rng: np.random.Generator, before: int, trials: int, budget: int | None
) -> tuple[Cover, Certificate]:
    """Draws one of the known covers after a search.

    If no cover is known, a walk with masks finds one with the evaluations that are left. This happens for a
    long prefix that the model would hardly write: it has too many histories to evaluate.
    """
    if tree.root.lower == -math.inf:
        rest = None if budget is None else budget - (tree.session.evaluations - before)
        cover, walked = pcas.sample(tree, rng, budget=rest)
        evaluations = tree.session.evaluations - before
        return cover, replace(
            walked,
            model_evals=evaluations,
            trials=trials,
            log_z_upper=tree.root.upper,
            tv_bound=1.0,
            approximate=True,
            calls_prefix=evaluations,
        )
    node: Node | None = tree.root
    bound = tv_bound(tree)
    while node is not None:
        last = node
        place = node.draw(node.child_lower, rng)
        node = node.children[place] if place >= 0 else None
    cover = tree.cover((*last.history, last.draw_covering(rng)))
    evaluations = tree.session.evaluations - before
    return cover, Certificate(
        model_evals=evaluations,
        trials=trials,
        log_z_lower=tree.root.lower,
        log_z_upper=tree.root.upper,
        tv_bound=bound,
        approximate=bound > 0,
        calls_prefix=evaluations,
    )
