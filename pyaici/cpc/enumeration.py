"""All covers of a prefix, most likely histories first, until what is left is too little to matter.

What has not been evaluated has some mass F; Z lies between the mass of the covers that are known and
that plus F, and a sample from the known ones is within F / (known + F) of the exact distribution in
total variation. With nothing left it is exact.
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

#: Histories that go through the model together.
BATCH = 8


def sample(
    tree: CoverTree, rng: np.random.Generator, eps: float = 1e-3, budget: int | None = None
) -> tuple[Cover, Certificate]:
    """One cover from those that are known when their distribution is within `eps` of the exact one.

    `eps` 0 enumerates all. `budget`: evaluations after which it takes what there is, see `give_up`; the
    certificate's bounds hold in any case. At temperature 0 the most likely cover. Raises DeadPrefixError
    if there is none.
    """
    if tree.temperature == 0:
        return best.most_likely(tree, rng, budget)
    if not tree.prefix:
        return nothing_to_cover(tree)
    before = tree.session.evaluations
    expand(tree, eps, budget)
    return _drawn(tree, rng, before, 1)


def expand(tree: CoverTree, eps: float = 0.0, budget: int | None = None, batch: int = BATCH) -> None:
    """Evaluates histories, most likely first, until the bound is at most `eps` or `budget` is used up.

    Raises DeadPrefixError if there is no cover.
    """
    before = tree.session.evaluations
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
            left = budget - (tree.session.evaluations - before)
            if left <= 0:
                return
            room = min(batch, left)
        popped = [heapq.heappop(heap) for _ in range(min(room, len(heap)))]
        tree.expand([(node, place) for _, _, node, place in popped])
        for minus_mass, _, node, place in popped:
            child = node.children[place]
            assert child is not None
            push(child, -minus_mass)


def tv_bound(tree: CoverTree) -> float:
    """The known covers' distribution is at most so far from the exact one in total variation."""
    root = tree.root
    return max(0.0, -math.expm1(root.lower - root.upper))


def give_up(tree: CoverTree, rng: np.random.Generator, before: int, trials: int) -> tuple[Cover, Certificate]:
    """A cover from those that are known, when another sampler has used up its budget.

    Where none is known, masks lead to one, at the cost of a few evaluations more, one for each token: of
    a long prefix that the model would not write there are more histories than anybody can ask about.
    """
    return _drawn(tree, rng, before, trials)


def nothing_to_cover(tree: CoverTree) -> tuple[Cover, Certificate]:
    """The answer to an empty prefix: no tokens, without asking the model."""
    return tree.cover(()), Certificate(0, log_z_lower=0.0, tv_bound=0.0, approximate=False)


def _drawn(tree: CoverTree, rng: np.random.Generator, before: int, trials: int) -> tuple[Cover, Certificate]:
    if tree.root.lower == -math.inf:
        cover, walked = pcas.sample(tree, rng)
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
