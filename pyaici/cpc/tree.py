"""The covers of a prefix as a tree of histories, with bounds of what each can still come to.

A cover is a sequence of tokens that spells the prefix, the last of which reaches its end or beyond.
A node is a history that spells a proper part of the prefix; Z(h) is the probability that a text
which began with h goes on to begin with the prefix:

    Z(h) = sum of p(t|h) over covering t + sum of p(t|h) Z(h t) over partial t

A history that has not been evaluated has Z between 0 and 1, which bounds that of all above it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from pyaici.cpc.cover import Cover, dead

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from pyaici.cpc.session import Session
    from pyaici.cpc.trie import Compatible


def log_sum(values: NDArray[np.float64]) -> float:
    """ln of the sum of exponentials; -inf of nothing."""
    if not len(values) or (largest := float(values.max())) == -math.inf:
        return -math.inf
    return largest + math.log(float(np.exp(values - largest).sum()))


@dataclass(eq=False, slots=True)
class Node:
    """A history that has been evaluated. Weights are logarithms, see `CoverTree.weights`."""

    history: tuple[int, ...]
    #: bytes of the prefix that it spells
    position: int
    #: the tokens that cover the rest, and their weights
    covering: NDArray[np.int64]
    log_covering: NDArray[np.float64]
    #: the tokens that spell a part of the rest, and their weights
    partial: NDArray[np.int64]
    log_partial: NDArray[np.float64]
    parent: Node | None
    #: which of the parent's partial tokens leads here
    place: int
    #: what partial tokens lead to, None where that has not been evaluated
    children: list[Node | None] = field(init=False)
    #: bounds of ln Z of the children
    child_upper: NDArray[np.float64] = field(init=False)
    child_lower: NDArray[np.float64] = field(init=False)
    #: ln of the probability of all covering tokens
    log_covered: float = field(init=False)
    #: bounds of ln Z
    upper: float = field(init=False)
    lower: float = field(init=False)
    _cumulated: NDArray[np.float64] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        count = len(self.partial)
        self.children = [None] * count
        self.child_upper, self.child_lower = np.zeros(count), np.full(count, -math.inf)
        self.log_covered = log_sum(self.log_covering)
        self.bound()

    def bound(self) -> None:
        """Brings the bounds up to date with the children's."""
        self.upper = log_sum(np.append(self.log_partial + self.child_upper, self.log_covered))
        self.lower = log_sum(np.append(self.log_partial + self.child_lower, self.log_covered))

    def draw(self, bounds: NDArray[np.float64], rng: np.random.Generator) -> int:
        """The place of a partial token, or -1 for a covering one: by weight times exp(`bounds`).

        There must be something of positive weight.
        """
        weights = np.append(self.log_covered, self.log_partial + bounds)
        return draw(weights, rng) - 1

    def draw_covering(self, rng: np.random.Generator) -> int:
        """A covering token, by weight."""
        if self._cumulated is None:
            self._cumulated = np.exp(self.log_covering - self.log_covering.max()).cumsum()
        return int(self.covering[_search(self._cumulated, rng)])


def draw(log_weights: NDArray[np.float64], rng: np.random.Generator) -> int:
    """An index, with probability proportional to the exponential of its weight; one must be finite."""
    return _search(np.exp(log_weights - log_weights.max()).cumsum(), rng)


def _search(cumulated: NDArray[np.float64], rng: np.random.Generator) -> int:
    # "right" passes over what has weight 0; rounding may lift the product to the total, which nothing passes
    target = min(rng.random() * cumulated[-1], np.nextafter(cumulated[-1], 0))
    return int(np.searchsorted(cumulated, target, side="right"))


class CoverTree:
    """The covers of one prefix after one context, at one temperature. Made by `Session.tree`."""

    def __init__(self, session: Session, context: tuple[int, ...], prefix: bytes, temperature: float) -> None:
        self.session = session
        self.context = context
        self.prefix = prefix
        self.temperature = temperature
        self._root: Node | None = None
        self._compatible: dict[int, Compatible] = {}

    @property
    def root(self) -> Node:
        """The empty history. Raises DeadPrefixError if no cover has a positive probability."""
        if self._root is None:
            self._root = self.evaluate((), 0)
            self._add_known(self._root)
        if self._root.upper == -math.inf:
            raise dead(self.prefix, 0)
        return self._root

    def evaluate(self, history: tuple[int, ...], position: int) -> Node:
        """The node of a history that spells `position` bytes of the prefix, outside of the tree."""
        (row,) = self.session.logprobs([self.context + history])
        return self._node(history, position, row, None, 0)

    def expand(self, places: Sequence[tuple[Node, int]]) -> None:
        """Evaluates what these partial tokens of nodes lead to, together; all bounds learn of it."""
        histories = [self.context + self._child_history(node, place) for node, place in places]
        for (node, place), row in zip(places, self.session.logprobs(histories), strict=True):
            child = self._attach(node, place, row)
            self._add_known(child)
            _back_up(child)

    def compatible(self, position: int) -> Compatible:
        """The tokens that go with the prefix from this byte on."""
        if position not in self._compatible:
            self._compatible[position] = self.session.trie.compatible(self.prefix[position:])
        return self._compatible[position]

    def weights(self, row: NDArray[np.float64]) -> NDArray[np.float64]:
        """What stands for log-probabilities at this temperature: they themselves where it is 1.

        Else those of the tempered distribution, normalised over all tokens; at 0, how far each is below
        the most likely token, which is what counts in the limit.
        """
        if self.temperature == 1:
            return row
        if self.temperature == 0:
            return row - float(row.max())
        scaled = row / self.temperature
        return scaled - log_sum(scaled)

    def cover(self, history: tuple[int, ...]) -> Cover:
        """These tokens with their text."""
        return Cover(history, self.session.trie.vocabulary.decode(history))

    def nodes(self) -> Iterator[Node]:
        """All that has been evaluated, parents first."""
        stack = [self.root]
        while stack:
            node = stack.pop()
            yield node
            stack += [child for child in node.children if child is not None]

    def _node(
        self,
        history: tuple[int, ...],
        position: int,
        row: NDArray[np.float64],
        parent: Node | None,
        place: int,
    ) -> Node:
        order = self.session.trie.order
        compatible = self.compatible(position)
        weights = self.weights(row)
        covering = compatible.covering
        return Node(
            history=history,
            position=position,
            covering=order[covering],
            # a copy, so that the tree does not hold whole distributions
            log_covering=weights[covering].copy(),
            partial=order[compatible.partial],
            log_partial=weights[compatible.partial],
            parent=parent,
            place=place,
        )

    def _child_history(self, node: Node, place: int) -> tuple[int, ...]:
        return (*node.history, int(node.partial[place]))

    def _attach(self, node: Node, place: int, row: NDArray[np.float64]) -> Node:
        history = self._child_history(node, place)
        position = node.position + len(self.session.trie.vocabulary.tokens[history[-1]])
        child = self._node(history, position, row, node, place)
        node.children[place] = child
        return child

    def _add_known(self, start: Node) -> None:
        """Attaches, below a node, all histories whose distributions the session has."""
        found = [start]
        for node in found:
            for place in range(len(node.partial)):
                row = self.session.known(self.context + self._child_history(node, place))
                if row is not None:
                    found.append(self._attach(node, place, row))
        # what is deeper was found later
        for node in reversed(found[1:]):
            _tell_parent(node)


def _tell_parent(node: Node) -> None:
    assert node.parent is not None
    node.parent.child_upper[node.place], node.parent.child_lower[node.place] = node.upper, node.lower
    node.parent.bound()


def _back_up(node: Node) -> None:
    """Tells all nodes above of this one's bounds."""
    while node.parent is not None:
        _tell_parent(node)
        node = node.parent
