"""Exact samples by rejection, with upper bounds that are learned on the way: the default.

A trial walks down from the empty history and chooses each token by p(t|h) U(h t), where U is the
least upper bound that is known of the probability that the prefix will be covered: 1 for what has
not been evaluated. A new history h is evaluated and stays with probability S(h), the sum of what is
below it; then U(h) becomes S(h), and all above it learn of that.

A trial therefore ends with the cover s with probability p(s) / S(empty history), so that samples have
exactly the distribution p(s) / Z, whatever was learned before. It can fail only where it evaluates a
new history: there are at most as many trials as histories, and one more. (Adaptive rejection as in
arXiv:2504.05410, over whole covers instead of single tokens.)
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from pyaici.cpc import best, enumeration
from pyaici.cpc.cover import Certificate, Cover

if TYPE_CHECKING:
    from pyaici.cpc.tree import CoverTree


def sample(tree: CoverTree, rng: np.random.Generator, budget: int | None = None) -> tuple[Cover, Certificate]:
    """One cover, drawn from exactly p(cover | the text begins with the prefix).

    `budget`: evaluations after which it is content with the covers that are known by then; the
    certificate says so, and how far from exact that can be. At temperature 0 the most likely cover.
    Raises DeadPrefixError if there is none.
    """
    if tree.temperature == 0:
        return best.most_likely(tree, rng, budget)
    if not tree.prefix:
        return enumeration.nothing_to_cover(tree)
    before = tree.session.evaluations
    trials = 0
    cover = None
    while cover is None:
        if budget is not None and tree.session.evaluations - before >= budget:
            return enumeration.give_up(tree, rng, before, trials)
        trials += 1
        cover = _trial(tree, rng)
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


def _trial(tree: CoverTree, rng: np.random.Generator) -> Cover | None:
    node = tree.root
    while (place := node.draw(node.child_upper, rng)) >= 0:
        child = node.children[place]
        if child is None:
            tree.expand([(node, place)])
            child = node.children[place]
            assert child is not None
            if math.log1p(-rng.random()) > child.upper:
                return None
        node = child
    return tree.cover((*node.history, node.draw_covering(rng)))
