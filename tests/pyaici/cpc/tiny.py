"""A language model that is a hash of the whole history, and its covers by brute force."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pyaici.cpc import CoverTree, Session, TokenTrie
from pyaici.tokens import Vocabulary

TOKENS = [*b"printx(", b"pr", b"ri", b"in", b"pri", b"int", b"print", b"private", b"prin"]
VOCAB = [bytes([token]) if isinstance(token, int) else token for token in TOKENS]
History = tuple[int, ...]


def vocabulary(tokens: Sequence[bytes] = VOCAB) -> Vocabulary:
    """Returns a vocabulary with an end token, a special token that looks like text, and an empty token."""
    size = len(tokens)
    names = {size: "</s>", size + 1: "pri"}
    return Vocabulary([*tokens, b"", b"", b""], names, eos=(size,), vocab_size=size + 3)


class TinyLM:
    """Computes p(t | h) from a seed and the history h; the last id has probability 0."""

    def __init__(self, size: int, seed: int, spread: float = 2.0) -> None:
        self.size, self.seed, self.spread = size, seed, spread
        self.evaluated: list[History] = []
        self._rows: dict[History, NDArray[np.float64]] = {}

    def row(self, history: History) -> NDArray[np.float64]:
        if history not in self._rows:
            self._rows[history] = self._draw(history)
        return self._rows[history]

    def _draw(self, history: History) -> NDArray[np.float64]:
        digest = hashlib.sha256(repr((self.seed, history)).encode()).digest()
        weights = np.random.default_rng(list(digest)).normal(0, self.spread, self.size)
        weights[-1] = -np.inf
        return weights - np.log(np.exp(weights).sum())

    def logprobs(self, histories: Sequence[History]) -> NDArray[np.float64]:
        self.evaluated += histories
        return np.array([self.row(history) for history in histories])


class TableLM:
    """Has the rows of a table, and one row for all other histories."""

    def __init__(self, rows: dict[History, dict[int, float]], size: int) -> None:
        self.rows, self.size = rows, size
        self.evaluated: list[History] = []

    def row(self, history: History) -> NDArray[np.float64]:
        chances = np.full(self.size, 1e-9)
        for token, chance in self.rows.get(history, {0: 0.5}).items():
            chances[token] = chance
        return np.log(chances / chances.sum())

    def logprobs(self, histories: Sequence[History]) -> NDArray[np.float64]:
        self.evaluated += histories
        return np.array([self.row(history) for history in histories])


Anything = TinyLM | TableLM


def make(
    seed: int = 0, tokens: Sequence[bytes] = VOCAB, spread: float = 2.0, max_bytes: int = 1 << 30
) -> tuple[TinyLM, Session]:
    vocab = vocabulary(tokens)
    model = TinyLM(vocab.vocab_size, seed, spread)
    return model, Session(model, TokenTrie(vocab), max_bytes)


def brute(
    model: Anything,
    vocab: Vocabulary,
    prefix: bytes,
    context: History = (),
    temperature: float = 1.0,
    masked: bool = False,
) -> dict[History, float]:
    """Returns every cover with its probability. `masked`: for a walk with masks at every step."""
    covers: dict[History, float] = {}

    def walk(history: History, left: bytes, chance: float) -> None:
        if not left:
            covers[history] = chance
            return
        row = np.exp(model.row(context + history) / temperature)
        row /= row.sum()
        fits = [
            token
            for token, data in enumerate(vocab.tokens)
            if data and (data.startswith(left) or left.startswith(data))
        ]
        mass = sum(row[fits]) if masked else 1.0
        for token in fits:
            walk((*history, token), left[len(vocab.tokens[token]) :], chance * row[token] / mass)

    walk((), prefix, 1.0)
    return covers


def conditioned(covers: dict[History, float]) -> dict[History, float]:
    total = sum(covers.values())
    return {cover: chance / total for cover, chance in covers.items()}


def tv(a: dict[History, float], b: dict[History, float]) -> float:
    return sum(abs(a.get(key, 0.0) - b.get(key, 0.0)) for key in {*a, *b}) / 2


def known_covers(tree: CoverTree) -> dict[History, float]:
    """Returns the covers of the evaluated part of a tree, with their probabilities."""
    covers = {}
    stack = [(tree.root, 0.0)]
    while stack:
        node, above = stack.pop()
        for token, weight in zip(node.covering.tolist(), node.log_covering.tolist(), strict=True):
            covers[(*node.history, token)] = float(np.exp(above + weight))
        for child, weight in zip(node.children, node.log_partial.tolist(), strict=True):
            if child is not None:
                stack.append((child, above + weight))
    return covers
