"""Prefix-constrained autoregressive sampling: masks at every step; biased, for comparison.

Each token is drawn from the tokens compatible with the rest of the prefix. The sampler ignores the mass
that a mask removes, so a cover has probability p(cover) divided by the product of the masses that the
masks leave along it. A walk that enters a history from which the prefix is unlikely must continue there;
it is never rejected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pyaici.cpc.cover import Certificate, Cover, dead
from pyaici.cpc.tree import draw

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyaici.cpc.tree import CoverTree

#: Lower temperatures are raised to this one.
MIN_TEMPERATURE = 1e-6


def sample(
    tree: CoverTree,
    rng: np.random.Generator,
    top_k: int = 0,
    top_p: float = 1.0,
    budget: int | None = None,
) -> tuple[Cover, Certificate]:
    """Draws a cover in one walk. A step with a single compatible token does not evaluate the model.

    `top_k` (0: no limit) and then `top_p` restrict the tokens that the mask leaves. After `budget`
    evaluations, every step takes the longest token without asking the model. Raises DeadPrefixError
    if the walk cannot continue. In a vocabulary with a token for every byte, that happens only where the
    model gives every compatible token probability 0.
    """
    trie = tree.session.trie
    before = tree.session.evaluations
    history: tuple[int, ...] = ()
    position = sampled = 0
    debug: list[str] = []
    while position < len(tree.prefix):
        compatible = tree.compatible(position)
        covering = np.arange(compatible.covering.start, compatible.covering.stop)
        places = np.concatenate([compatible.partial, covering])
        if not len(places):
            raise dead(tree.prefix, position)
        if len(places) == 1:
            token = int(trie.order[places[0]])
            debug.append(f"[forced] {_shown(trie.vocabulary.tokens[token])}")
        elif budget is not None and tree.session.evaluations - before >= budget:
            longest = _longest(tree, position)
            assert longest is not None
            token = longest
            debug.append(f"[longest] {_shown(trie.vocabulary.tokens[token])}")
        else:
            (row,) = tree.session.logprobs([tree.context + history])
            weights = truncated(row[places] / max(MIN_TEMPERATURE, tree.temperature), top_k, top_p)
            if weights.max() == -np.inf:
                raise dead(tree.prefix, position)
            token = int(trie.order[places[draw(weights, rng)]])
            sampled += 1
            debug.append(f"[branch] |A|={len(places)}")
            debug.append(f"  sampled {_shown(trie.vocabulary.tokens[token])}")
        history += (token,)
        position += len(trie.vocabulary.tokens[token])
    # if every cover is a single token, masking equals conditioning
    exact = top_k == 0 and top_p == 1 and not (tree.prefix and len(tree.compatible(0).partial))
    return tree.cover(history), Certificate(
        model_evals=tree.session.evaluations - before,
        tv_bound=0.0 if exact else None,
        approximate=not exact,
        calls_prefix=sampled,
        debug=tuple(debug),
    )


def reserve(tree: CoverTree, budget: int) -> int:
    """Returns how many of `budget` evaluations a search should leave for a walk, in case it finds no cover.

    That is one for each token of a walk that always takes the longest token, but at most half of the budget.
    Where such a walk cannot continue, others may, so nothing is dead.
    """
    count = position = 0
    while position < len(tree.prefix) and count < budget // 2:
        token = _longest(tree, position)
        if token is None:
            break
        position += len(tree.session.trie.vocabulary.tokens[token])
        count += 1
    return count


def _longest(tree: CoverTree, position: int) -> int | None:
    """Returns the token that spells most of the prefix from byte `position` on; None if no token fits.

    Of those that reach its end, returns the shortest.
    """
    trie, compatible = tree.session.trie, tree.compatible(position)
    covering = trie.order[compatible.covering]
    if len(covering):
        return int(min(covering, key=lambda token: len(trie.vocabulary.tokens[token])))
    if not len(compatible.partial):
        return None
    return int(max(trie.order[compatible.partial], key=lambda token: len(trie.vocabulary.tokens[token])))


def truncated(weights: NDArray[np.float64], top_k: int, top_p: float) -> NDArray[np.float64]:
    """Keeps the `top_k` largest weights (logarithms, [N]), and of these the largest until `top_p` is passed.

    The weight at which the cumulated share passes `top_p` is kept. The other weights become -inf.
    """
    order = np.argsort(-weights, kind="stable")
    kept = order[:top_k] if top_k else order
    if top_p < 1:
        shares = np.exp(weights[kept] - weights[order[0]]).cumsum()
        kept = kept[: int(np.searchsorted(shares, top_p * shares[-1], side="right")) + 1]
    result = np.full_like(weights, -np.inf)
    result[kept] = weights[kept]
    return result


def _shown(token: bytes) -> str:
    return repr(token.decode("utf-8", "replace"))
