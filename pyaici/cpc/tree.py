"""The covers of a prefix as a tree of histories, with bounds of each history's probability.

A cover is a sequence of tokens that spells the prefix; its last token reaches the end of the prefix or
beyond. A node is a history whose text is a proper beginning of the prefix. Z(h) is the probability that a
text which begins with h also begins with the prefix:

    Z(h) = sum of p(t|h) over covering t + sum of p(t|h) Z(h t) over partial t

The Z of a history that has not been evaluated is between 0 and 1, which bounds Z of all its ancestors.

The tokens that fit the rest of a prefix are found in a trie, the sorted list of all tokens' bytes. A subtree
is a range of this list, found by bisection, and its probabilities are a slice of the distribution in that
order. Slices are summed directly: differences of running sums would lose prefixes that are less likely than
the rounding error of 1.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np

from aicirt.contract.errors import AiciError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from pyaici.tokens import Vocabulary


class DeadPrefixError(AiciError):
    """No token sequence begins with the prefix, or the model gives all such sequences probability 0."""

    code: ClassVar[str] = "dead_prefix"


def dead(prefix: bytes, position: int) -> DeadPrefixError:
    """Returns the error for a prefix that no token continues from byte `position`."""
    shown = prefix[position:].decode("utf-8", "backslashreplace")
    return DeadPrefixError(f"A(i)=∅: no token fits {shown!r}, the prefix from byte {position} on")


@dataclass(frozen=True, slots=True)
class Cover:
    """Tokens whose text begins with the prefix; the last token reaches the end of the prefix or beyond."""

    tokens: tuple[int, ...]
    #: bytes of the tokens: the prefix, and the bytes of the last token beyond it
    text: bytes


class Model(Protocol):
    """A source of next-token distributions, which may cache work between calls."""

    def logprobs(self, histories: Sequence[tuple[int, ...]]) -> NDArray[np.float64]:
        """Returns the normalised natural log-probabilities of the next token after each history, [B, V]."""
        ...


class Distributions:
    """A model and a cache of its distributions. Use from a single thread.

    The cache keeps whole distributions, as float64 in the trie's order, and evicts the least recently used.
    """

    def __init__(self, model: Model, trie: TokenTrie, max_bytes: int) -> None:
        self.trie = trie
        #: number of histories that the model has evaluated
        self.evaluations = 0
        self._model = model
        self._room = max_bytes
        self._known: OrderedDict[tuple[int, ...], NDArray[np.float64]] = OrderedDict()

    def known(self, history: tuple[int, ...]) -> NDArray[np.float64] | None:
        """Returns the cached log-probabilities after a history (trie order, float64 [V]), or None."""
        if (found := self._known.get(history)) is not None:
            self._known.move_to_end(history)
        return found

    def logprobs(self, histories: Sequence[tuple[int, ...]]) -> list[NDArray[np.float64]]:
        """Returns `known` of every history; evaluates all missing histories in one call of the model."""
        found = {history: self.known(history) for history in histories}
        missing = [history for history, row in found.items() if row is None]
        if missing:
            self.evaluations += len(missing)
            for history, row in zip(missing, self._model.logprobs(missing), strict=True):
                found[history] = self._keep(history, row[self.trie.order])
        return [row for history in histories if (row := found[history]) is not None]

    def _keep(self, history: tuple[int, ...], row: NDArray[np.float64]) -> NDArray[np.float64]:
        self._known[history] = row
        self._room -= row.nbytes
        while self._room < 0 and self._known:
            self._room += self._known.popitem(last=False)[1].nbytes
        return row


class CoverTree:
    """The covers of a prefix after a context, at a given temperature. Created by `Session.tree`."""

    def __init__(
        self,
        distributions: Distributions,
        context: tuple[int, ...],
        prefix: bytes,
        temperature: float,
        *,
        fresh: bool = False,
    ) -> None:
        self.distributions = distributions
        self.context = context
        self.prefix = prefix
        self.temperature = temperature
        self._fresh = fresh
        self._root: Node | None = None
        self._compatible: dict[int, Compatible] = {}

    @property
    def root(self) -> Node:
        """The node of the empty history. Raises DeadPrefixError if no cover has a positive probability."""
        if self._root is None:
            self._root = self.evaluate((), 0)
            self._add_known(self._root)
        if self._root.upper == -math.inf:
            raise dead(self.prefix, 0)
        return self._root

    def evaluate(self, history: tuple[int, ...], position: int) -> Node:
        """Returns the node of a history that spells `position` bytes of the prefix, without attaching it."""
        (row,) = self.distributions.logprobs([self.context + history])
        return self._node(history, position, row, None, 0)

    def expand(self, places: Sequence[tuple[Node, int]]) -> None:
        """Evaluates the histories after these partial tokens in one batch, and updates all bounds."""
        histories = [self.context + self._child_history(node, place) for node, place in places]
        for (node, place), row in zip(places, self.distributions.logprobs(histories), strict=True):
            child = self._attach(node, place, row)
            self._add_known(child)
            _back_up(child)

    def compatible(self, position: int) -> Compatible:
        """Returns the tokens compatible with the prefix from byte `position` on."""
        if position not in self._compatible:
            self._compatible[position] = self.distributions.trie.compatible(self.prefix[position:])
        return self._compatible[position]

    def weights(self, row: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the weights of log-probabilities `row` at the tree's temperature.

        At 1, the weights are `row` itself; at other temperatures, the log-probabilities of the tempered
        distribution, normalised over all tokens. At 0, a weight is the difference to the most likely
        token, which decides in the limit.
        """
        if self.temperature == 1:
            return row
        if self.temperature == 0:
            return row - float(row.max())
        scaled = row / self.temperature
        return scaled - log_sum(scaled)

    def cover(self, history: tuple[int, ...]) -> Cover:
        """Returns the cover of these tokens, with their text."""
        return Cover(history, self.distributions.trie.vocabulary.decode(history))

    def nodes(self) -> Iterator[Node]:
        """Yields all evaluated nodes, parents first."""
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
        order = self.distributions.trie.order
        compatible = self.compatible(position)
        weights = self.weights(row)
        covering = compatible.covering
        return Node(
            history=history,
            position=position,
            covering=order[covering],
            # a copy, so that the tree does not keep whole distributions in memory
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
        position = node.position + len(self.distributions.trie.vocabulary.tokens[history[-1]])
        child = self._node(history, position, row, node, place)
        node.children[place] = child
        return child

    def _add_known(self, start: Node) -> None:
        """Attaches below a node all histories whose distributions are in the cache, unless `fresh`."""
        if self._fresh:
            return
        found = [start]
        for node in found:
            for place in range(len(node.partial)):
                row = self.distributions.known(self.context + self._child_history(node, place))
                if row is not None:
                    found.append(self._attach(node, place, row))
        # deeper nodes were found later
        for node in reversed(found[1:]):
            _update_parent(node)


@dataclass(eq=False, slots=True)
class Node:
    """An evaluated history. Weights are logarithms, see `CoverTree.weights`."""

    history: tuple[int, ...]
    #: number of bytes of the prefix that the history spells
    position: int
    #: tokens that cover the rest of the prefix, and their weights
    covering: NDArray[np.int64]
    log_covering: NDArray[np.float64]
    #: tokens that spell a part of the rest, and their weights
    partial: NDArray[np.int64]
    log_partial: NDArray[np.float64]
    parent: Node | None
    #: index of the parent's partial token that leads here
    place: int
    #: the node after each partial token; None if it has not been evaluated
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
        """Recomputes the bounds from those of the children."""
        self.upper = log_sum(np.append(self.log_partial + self.child_upper, self.log_covered))
        self.lower = log_sum(np.append(self.log_partial + self.child_lower, self.log_covered))

    def draw(self, bounds: NDArray[np.float64], rng: np.random.Generator) -> int:
        """Draws the index of a partial token, or -1 for the covering tokens together.

        The probability of a partial token is proportional to the exponential of its weight plus its bound,
        that of -1 to the exponential of `log_covered`. At least one must be positive.
        """
        weights = np.append(self.log_covered, self.log_partial + bounds)
        return draw(weights, rng) - 1

    def draw_covering(self, rng: np.random.Generator) -> int:
        """Draws a covering token by weight."""
        if self._cumulated is None:
            self._cumulated = np.exp(self.log_covering - self.log_covering.max()).cumsum()
        return int(self.covering[_search(self._cumulated, rng)])


def draw(log_weights: NDArray[np.float64], rng: np.random.Generator) -> int:
    """Draws an index by the exponential of its weight; at least one weight must be finite."""
    return _search(np.exp(log_weights - log_weights.max()).cumsum(), rng)


def _search(cumulated: NDArray[np.float64], rng: np.random.Generator) -> int:
    # "right" skips indices of weight 0. Rounding may lift the product to the total, which no index passes.
    target = min(rng.random() * cumulated[-1], np.nextafter(cumulated[-1], 0))
    return int(np.searchsorted(cumulated, target, side="right"))


def _update_parent(node: Node) -> None:
    assert node.parent is not None
    node.parent.child_upper[node.place], node.parent.child_lower[node.place] = node.upper, node.lower
    node.parent.bound()


def _back_up(node: Node) -> None:
    """Updates the bounds of all ancestors of a node."""
    while node.parent is not None:
        _update_parent(node)
        node = node.parent


def log_sum(values: NDArray[np.float64]) -> float:
    """Returns ln of the sum of exponentials; -inf for an empty array."""
    if not len(values) or (largest := float(values.max())) == -math.inf:
        return -math.inf
    return largest + math.log(float(np.exp(values - largest).sum()))


@dataclass(frozen=True, eq=False, slots=True)
class Compatible:
    """The tokens that can come next before the prefix is covered."""

    #: tokens that begin with the rest of the prefix, as a range of `TokenTrie.order`
    covering: slice
    #: tokens that are a proper beginning of the rest, as indices in `TokenTrie.order`, shortest first, int64
    partial: NDArray[np.int64]

    @property
    def count(self) -> int:
        """The number of compatible tokens."""
        return int(self.covering.stop - self.covering.start) + len(self.partial)


class TokenTrie:
    """The bytes of a vocabulary's tokens, sorted.

    Special tokens and tokens without bytes are not compatible with any text.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        tokens = vocabulary.tokens
        text = [token for token, data in enumerate(tokens) if data and token not in vocabulary.special_names]
        text.sort(key=lambda token: (tokens[token], token))
        rest = sorted(set(range(vocabulary.vocab_size)).difference(text))
        self.vocabulary = vocabulary
        #: all ids: tokens with text sorted by their bytes, then the others, int64 [V]
        self.order: NDArray[np.int64] = np.array(text + rest, np.int64)
        self._bytes = [tokens[token] for token in text]
        self._longest = max(map(len, self._bytes), default=0)

    def tokens_that_start_with(self, text: str | bytes) -> NDArray[np.int64]:
        """Returns the ids of tokens that begin with these bytes (str: its UTF-8), sorted by their bytes."""
        return self.order[self._starting(_bytes(text))]

    def tokens_that_are_prefix_of(self, text: str | bytes) -> NDArray[np.int64]:
        """Returns the ids of tokens with which these bytes begin, or which equal them, shortest first."""
        return self.order[self._along(_bytes(text))]

    def compatible(self, rest: bytes) -> Compatible:
        """Returns the tokens compatible with the rest of a prefix; if it is empty, all tokens with text."""
        return Compatible(self._starting(rest), self._along(rest[:-1]))

    def _starting(self, text: bytes) -> slice:
        first = bisect_left(self._bytes, text)
        # the range ends at the next text without this beginning: increment the last byte below 0xff
        stem = text.rstrip(b"\xff")
        if not stem:
            return slice(first, len(self._bytes))
        return slice(first, bisect_left(self._bytes, stem[:-1] + bytes([stem[-1] + 1]), first))

    def _along(self, text: bytes) -> NDArray[np.int64]:
        """Returns the indices of the tokens that are beginnings of a text, or the whole text."""
        places = []
        place = 0
        for length in range(1, min(len(text), self._longest) + 1):
            part = text[:length]
            place = bisect_left(self._bytes, part, place)
            while place < len(self._bytes) and self._bytes[place] == part:
                places.append(place)
                place += 1
        return np.array(places, np.int64)


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text
