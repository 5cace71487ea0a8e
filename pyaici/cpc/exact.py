"""Draws exact samples by rejection, with upper bounds that it learns on the way: the default sampler.

A trial walks down from the empty history and draws each token with a weight of p(t|h) U(h t). U is the
smallest known upper bound of the probability that the prefix will be covered; it is 1 for a history that
has not been evaluated. A new history h is evaluated and accepted with probability S(h), the sum of the
weights below it. Then U(h) becomes S(h), and the bounds of all histories above h are updated.

A trial therefore ends with the cover s with probability p(s) / S(empty history). Samples thus have
exactly the distribution p(s) / Z, whatever was learned before. A trial can fail only at a new history, so
there is at most one trial more than there are histories. (Adaptive rejection as in arXiv:2504.05410,
applied to whole covers instead of single tokens.)
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from pyaici.cpc import best, enumeration, pcas
from pyaici.cpc.cover import Certificate, Cover

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyaici.cpc.tree import CoverTree


def sample(tree: CoverTree, rng: np.random.Generator, budget: int | None = None) -> tuple[Cover, Certificate]:
    """Draws a cover from exactly p(cover | the text begins with the prefix).

    After `budget` evaluations, draws from the covers known by then; the certificate is then marked
    `approximate`, with a bound of the distance from exact. At temperature 0, returns the most likely
    cover. Raises DeadPrefixError if there is no cover.
    """
    if tree.temperature == 0:
        return best.most_likely(tree, rng, budget)
    if not tree.prefix:
        return enumeration.nothing_to_cover(tree)
    before = tree.session.evaluations
    kept = 0 if budget is None else pcas.reserve(tree, budget)
    trials = 0
    cover = None

    def spent() -> bool:
        return budget is not None and enumeration.left(tree, before, budget, kept) <= 0

    while cover is None:
        if spent():
            return enumeration.draw_known(tree, rng, before, trials, budget)
        trials += 1
        cover = _trial(tree, rng, spent)
    evaluations = tree.session.evaluations - before
    root = tree.root
    return cover, Certificate(
        model_evals=evaluations,
        trials=trials,
        log_z_lower=root.lower,
        log_z_upper=root.upper,
        tv_bound=0.0,
        approximate=False,
        calls_prefix=evaluations,
    )


def _trial(tree: CoverTree, rng: np.random.Generator, spent: Callable[[], bool]) -> Cover | None:
    """Returns a cover; None if a new history refuses it, or if no more may be evaluated."""
    node = tree.root
    while (place := node.draw(node.child_upper, rng)) >= 0:
        child = node.children[place]
        if child is None:
            if spent():
                return None
            tree.expand([(node, place)])
            child = node.children[place]
            assert child is not None
            if math.log1p(-rng.random()) > child.upper:
                return None
        node = child
    return tree.cover((*node.history, node.draw_covering(rng)))
