"""Samplers: functions that draw a cover of a prefix from its tree.

`sample_exact` and `sample_enumerated` draw from the model's own distribution, and `most_likely` is its limit
at temperature 0. `sample_pcas` and `sample_healed` are biased, and here for comparison. A certificate says
how a cover was found, and how far its distribution can be from the exact one.
"""

from __future__ import annotations

import heapq
import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from pyaici.cpc.tree import dead, draw

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from pyaici.cpc.tree import Cover, CoverTree, Node


@dataclass(frozen=True, slots=True)
class Certificate:
    """A record of how a cover was found, and of the distribution from which it was drawn."""

    #: histories that the model evaluated in this call; histories in the session's cache are not counted
    model_evals: int
    #: attempts; the last one succeeded, unless the budget was used up
    trials: int = 1
    #: bounds of ln Z, the logarithm of the probability that a text begins with the prefix
    log_z_lower: float = float("-inf")
    log_z_upper: float = 0.0
    #: upper bound of the total variation distance from the exact distribution; None: not known
    tv_bound: float | None = None
    #: the distribution is not exact, or not known to be exact
    approximate: bool = True
    #: model calls for the prefix; `sample_pcas` counts its sampled steps, as the first implementation did
    calls_prefix: int = 0
    #: readable lines about the steps
    debug: tuple[str, ...] = ()


def sample_exact(
    tree: CoverTree, rng: np.random.Generator, budget: int | None = None
) -> tuple[Cover, Certificate]:
    """Draws a cover from exactly p(cover | the text begins with the prefix); the default sampler.

    It samples by rejection, with upper bounds that it learns on the way. A trial walks down from the empty
    history and draws each token with a weight of p(t|h) U(h t). U is the smallest known upper bound of the
    probability that the prefix will be covered; it is 1 for a history that has not been evaluated. A new
    history h is evaluated and accepted with probability S(h), the sum of the weights below it. Then U(h)
    becomes S(h), and the bounds of all histories above h are updated.

    A trial therefore ends with the cover s with probability p(s) / S(empty history). Samples thus have
    exactly the distribution p(s) / Z, whatever was learned before. A trial can fail only at a new history, so
    there is at most one trial more than there are histories. (Adaptive rejection as in arXiv:2504.05410,
    applied to whole covers instead of single tokens.)

    After `budget` evaluations, draws from the covers known by then; the certificate is then marked
    `approximate`, with a bound of the distance from exact. At temperature 0, returns the most likely
    cover. Raises DeadPrefixError if there is no cover.
    """
    if tree.temperature == 0:
        return most_likely(tree, rng, budget)
    if not tree.prefix:
        return _nothing_to_cover(tree)
    before = tree.distributions.evaluations
    kept = 0 if budget is None else _reserve(tree, budget)
    trials = 0
    cover = None

    def spent() -> bool:
        return budget is not None and _left(tree, before, budget, kept) <= 0

    while cover is None:
        if spent():
            return _draw_known(tree, rng, before, trials, budget)
        trials += 1
        cover = _trial(tree, rng, spent)
    evaluations = tree.distributions.evaluations - before
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


# -- enumeration --------------------------------------------------------------------------------------------

#: Histories that the model evaluates in one batch.
BATCH = 8


def sample_enumerated(
    tree: CoverTree, rng: np.random.Generator, eps: float = 1e-3, budget: int | None = None
) -> tuple[Cover, Certificate]:
    """Draws one of the known covers once their distribution is within `eps` of the exact one.

    It enumerates the covers, most likely histories first, until the rest is negligible. Let F be the mass of
    the histories that have not been evaluated. Z lies between the mass of the known covers and that mass plus
    F. A sample from the known covers is within F / (known + F) of the exact distribution in total variation.
    If no history is left, the sample is exact.

    `eps` = 0 enumerates all covers. After `budget` evaluations, draws from the covers known by then; the
    certificate's bounds hold in any case. At temperature 0, returns the most likely cover. Raises
    DeadPrefixError if there is no cover.
    """
    if tree.temperature == 0:
        return most_likely(tree, rng, budget)
    if not tree.prefix:
        return _nothing_to_cover(tree)
    before = tree.distributions.evaluations
    enumerate_covers(tree, eps, budget)
    return _draw_known(tree, rng, before, 1, budget)


def enumerate_covers(
    tree: CoverTree, eps: float = 0.0, budget: int | None = None, batch: int = BATCH
) -> None:
    """Evaluates histories, most likely first, until the bound is at most `eps` or `budget` is used up.

    Raises DeadPrefixError if there is no cover.
    """
    before = tree.distributions.evaluations
    kept = 0 if budget is None else _reserve(tree, budget)
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
    while heap and (eps == 0 or _tv_bound(tree) > eps):
        room = batch
        if budget is not None:
            room = min(batch, _left(tree, before, budget, kept))
            if room <= 0:
                return
        popped = [heapq.heappop(heap) for _ in range(min(room, len(heap)))]
        tree.expand([(node, place) for _, _, node, place in popped])
        for minus_mass, _, node, place in popped:
            child = node.children[place]
            assert child is not None
            push(child, -minus_mass)


def _tv_bound(tree: CoverTree) -> float:
    """Returns an upper bound of the total variation distance of the known covers from the exact ones."""
    root = tree.root
    return max(0.0, -math.expm1(root.lower - root.upper))


def _draw_known(
    tree: CoverTree, rng: np.random.Generator, before: int, trials: int, budget: int | None
) -> tuple[Cover, Certificate]:
    """Draws one of the known covers after a search.

    If no cover is known, a walk with masks finds one with the evaluations that are left. This happens for a
    long prefix that the model would hardly write: it has too many histories to evaluate.
    """
    if tree.root.lower == -math.inf:
        rest = None if budget is None else budget - (tree.distributions.evaluations - before)
        cover, walked = sample_pcas(tree, rng, budget=rest)
        evaluations = tree.distributions.evaluations - before
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
    bound = _tv_bound(tree)
    while node is not None:
        last = node
        place = node.draw(node.child_lower, rng)
        node = node.children[place] if place >= 0 else None
    cover = tree.cover((*last.history, last.draw_covering(rng)))
    evaluations = tree.distributions.evaluations - before
    return cover, Certificate(
        model_evals=evaluations,
        trials=trials,
        log_z_lower=tree.root.lower,
        log_z_upper=tree.root.upper,
        tv_bound=bound,
        approximate=bound > 0,
        calls_prefix=evaluations,
    )


# -- temperature 0 ------------------------------------------------------------------------------------------


def most_likely(
    tree: CoverTree, rng: np.random.Generator, budget: int | None = None
) -> tuple[Cover, Certificate]:
    """Returns the most likely cover: the limit of the exact distribution as the temperature goes to 0.

    At temperature T the probability of a cover is the product of the tempered probabilities of its tokens. As
    T goes to 0, the conditional distribution concentrates on the cover with the largest sum of
    ln p(token) - ln p(most likely token). Every token can only lower this sum, so a best-first search finds
    that cover, and evaluates only histories that could lead to it. Ties are broken arbitrarily. Masking and
    taking the best token at each step gives another result: the walk may have to continue from an unlikely
    history.

    A walk with masks that takes the best token at each step replaces a search that would take more than
    `budget` evaluations; they include those of the walk. Raises DeadPrefixError if there is no cover.
    """
    if not tree.prefix:
        return _nothing_to_cover(tree)
    before = tree.distributions.evaluations
    order = itertools.count()
    #: (-sum of weights, order, node, place): a path to a partial token, or to a covering one (place -1)
    heap: list[tuple[float, int, Node, int]] = []

    def push(node: Node, weight: float) -> None:
        if len(node.covering):
            _add_node(weight + float(node.log_covering.max()), node, -1)
        for place, partial in enumerate(node.log_partial.tolist()):
            _add_node(weight + partial, node, place)

    def _add_node(weight: float, node: Node, place: int) -> None:
        if weight > -math.inf:
            heapq.heappush(heap, (-weight, next(order), node, place))

    kept = 0 if budget is None else _reserve(tree, budget)
    push(tree.root, 0.0)
    while heap:
        minus_weight, _, node, place = heapq.heappop(heap)
        if place < 0:
            cover = tree.cover((*node.history, int(node.covering[node.log_covering.argmax()])))
            evaluations = tree.distributions.evaluations - before
            return cover, Certificate(evaluations, tv_bound=0.0, approximate=False, calls_prefix=evaluations)
        if node.children[place] is None:
            if budget is not None and (used := tree.distributions.evaluations - before) >= budget - kept:
                cover, walked = sample_pcas(tree, rng, budget=budget - used)
                evaluations = tree.distributions.evaluations - before
                return cover, replace(walked, model_evals=evaluations, calls_prefix=evaluations)
            tree.expand([(node, place)])
        child = node.children[place]
        assert child is not None
        push(child, -minus_weight)
    raise dead(tree.prefix, 0)


# -- masks at every step ------------------------------------------------------------------------------------

#: Lower temperatures are raised to this one.
MIN_TEMPERATURE = 1e-6


def sample_pcas(
    tree: CoverTree,
    rng: np.random.Generator,
    top_k: int = 0,
    top_p: float = 1.0,
    budget: int | None = None,
) -> tuple[Cover, Certificate]:
    """Draws a cover by prefix-constrained autoregressive sampling: masks at every step. For comparison only.

    Each token is drawn from the tokens compatible with the rest of the prefix. A step with a single
    compatible token does not evaluate the model. The sampler ignores the mass that a mask removes, so it is
    biased: a cover has probability p(cover) divided by the product of the masses that the masks leave along
    it. A walk that enters a history from which the prefix is unlikely must continue there; it is never
    rejected.

    `top_k` (0: no limit) and then `top_p` restrict the tokens that the mask leaves. After `budget`
    evaluations, every step takes the longest token without asking the model. Raises DeadPrefixError
    if the walk cannot continue. In a vocabulary with a token for every byte, that happens only where the
    model gives every compatible token probability 0.
    """
    trie = tree.distributions.trie
    before = tree.distributions.evaluations
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
        elif budget is not None and tree.distributions.evaluations - before >= budget:
            longest = _longest(tree, position)
            assert longest is not None
            token = longest
            debug.append(f"[longest] {_shown(trie.vocabulary.tokens[token])}")
        else:
            (row,) = tree.distributions.logprobs([tree.context + history])
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
        model_evals=tree.distributions.evaluations - before,
        tv_bound=0.0 if exact else None,
        approximate=not exact,
        calls_prefix=sampled,
        debug=tuple(debug),
    )


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


def _longest(tree: CoverTree, position: int) -> int | None:
    """Returns the token that spells most of the prefix from byte `position` on; None if no token fits.

    Of those that reach its end, returns the shortest.
    """
    trie, compatible = tree.distributions.trie, tree.compatible(position)
    covering = trie.order[compatible.covering]
    if len(covering):
        return int(min(covering, key=lambda token: len(trie.vocabulary.tokens[token])))
    if not len(compatible.partial):
        return None
    return int(max(trie.order[compatible.partial], key=lambda token: len(trie.vocabulary.tokens[token])))


def _shown(token: bytes) -> str:
    return repr(token.decode("utf-8", "replace"))


# -- token healing ------------------------------------------------------------------------------------------


def sample_healed(
    tree: CoverTree, rng: np.random.Generator, tokenize: Callable[[bytes], Sequence[int]]
) -> tuple[Cover, Certificate]:
    """Returns all tokens of the prefix but the last, then a token that begins with the last one's bytes.

    Token healing keeps the tokenizer's split of the prefix. For comparison only: it is exact among the covers
    that consist of all these tokens but the last and one covering token; it loses all other covers.

    `tokenize` must return tokens whose bytes are the given ones. Raises ValueError if they differ, and
    DeadPrefixError if the model gives probability 0 to every token that can come last.
    """
    if not tree.prefix:
        return _nothing_to_cover(tree)
    tokens = tuple(tokenize(tree.prefix))
    spelled = tree.cover(tokens).text
    if spelled != tree.prefix:
        raise ValueError(f"the prefix {tree.prefix!r} is tokenized as {spelled!r}")
    stem = tokens[:-1]
    before = tree.distributions.evaluations
    node = tree.evaluate(stem, len(tree.cover(stem).text))
    if node.log_covered == float("-inf"):
        raise dead(tree.prefix, node.position)
    if tree.temperature == 0:
        token = int(node.covering[node.log_covering.argmax()])
    else:
        token = node.draw_covering(rng)
    evaluations = tree.distributions.evaluations - before
    return tree.cover((*stem, token)), Certificate(evaluations, calls_prefix=evaluations)


# -- what the samplers share --------------------------------------------------------------------------------


def _nothing_to_cover(tree: CoverTree) -> tuple[Cover, Certificate]:
    """Returns the result for an empty prefix: a cover without tokens, and no model evaluation."""
    return tree.cover(()), Certificate(0, log_z_lower=0.0, tv_bound=0.0, approximate=False)


def _left(tree: CoverTree, before: int, budget: int, kept: int) -> int:
    """Returns how many of `budget` evaluations a search may still make.

    `before`: evaluations of the session when the search began. `kept`: how many to keep, while no cover is
    known, for the walk that `_draw_known` may need (`_reserve`).
    """
    unknown = tree.root.lower == -math.inf  # evaluates the root first, which counts
    return budget - (tree.distributions.evaluations - before) - (kept if unknown else 0)


def _reserve(tree: CoverTree, budget: int) -> int:
    """Returns how many of `budget` evaluations a search should leave for a walk, in case it finds no cover.

    That is one for each token of a walk that always takes the longest token, but at most half of the budget.
    Where such a walk cannot continue, others may, so nothing is dead.
    """
    count = position = 0
    while position < len(tree.prefix) and count < budget // 2:
        token = _longest(tree, position)
        if token is None:
            break
        position += len(tree.distributions.trie.vocabulary.tokens[token])
        count += 1
    return count
