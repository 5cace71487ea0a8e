"""Predicts the answers of sequences of lab/guests/ledger.c, to detect answers of another sequence."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from aicirt.contract.abi import RowKind, Verb
from pyaici.client.results import MidResult, Row
from pyaici.tokens import TokenizerBlob, Vocabulary

_WORD = 0xFFFFFFFF
#: the answer to a step: a verb, then its fields
Expected = tuple[object, ...]


def make_vocabulary(vocab_size: int, shift: int) -> Vocabulary:
    """Returns a vocabulary with one token per byte, rotated by `shift`, and padding up to `vocab_size`."""
    return Vocabulary(
        tokens=[b"" if i == 0 else bytes([1 + (i - 1 + shift) % 255]) for i in range(256)],
        special_names={0: "<end>"},
        eos=(0,),
        vocab_size=vocab_size,
        name=f"bytes, rotated by {shift}",
        tokenizer=TokenizerBlob("longest"),
    )


def mix(h: int, x: int) -> int:
    """Computes the guest's hash."""
    h = ((h ^ x) * 0x9E3779B1) & _WORD
    return h ^ h >> 15


def _pick(h: int) -> int:
    return 1 + h % 200


class Ledger:
    """The state of one sequence, as its guest computes it."""

    def __init__(self, key: int, forks: int, prompt: Sequence[int], vocabulary: Vocabulary) -> None:
        self.argument = f"{key} {forks}"
        self._key = key
        #: remaining forks
        self.forks = forks
        self._vocabulary = vocabulary
        self._hash = 0
        self._step = 0
        self._row: Expected = ()
        for x in (key, vocabulary.vocab_size, vocabulary.tokens[_pick(key)][0], *prompt):
            self._fold(x)

    def begin_step(self, tokens: Sequence[int], backtrack: int) -> int:
        """Begins a step; returns the number of sequences after a fork in it, or 1."""
        self._step += 1
        for x in (self._step, backtrack, *tokens):
            self._fold(x)
        if self.forks and not self._hash >> 20 & 31:
            self.forks -= 1
            return 2 + (self._hash >> 25 & 1)
        return 1

    def group(self, size: int) -> list[Ledger]:
        """Returns this sequence and the others after a fork."""
        members = [self, *(copy.copy(self) for _ in range(size - 1))]
        for place, member in enumerate(members):
            member._fold(place + 1)
        return members

    def clone(self) -> Ledger:
        """Returns a copy of the current state."""
        return copy.copy(self)

    def log(self) -> str:
        """Returns what the guest prints in this step."""
        return f"{self._key:08x} {self._hash:08x}\n" if self._step % 8 == 0 else ""

    def expected(self) -> Expected:
        """Returns the answer to this step in the form of `seen`. Call it once a step."""
        h, words = self._hash, (self._vocabulary.vocab_size + 31) // 32
        kind, rare = h >> 8 & 15, h >> 12 & 15
        if kind == 3:
            return Verb.SPLICE, int(h & 1 and self._step > 4), (_pick(h), _pick(h >> 5))
        if kind == 15 and rare < 2:
            return (Verb.STOP,)
        if kind == 14 and rare == 0:
            return Verb.ERROR, "failed", f"failed as told: {h:08x}"
        if kind == 5:
            self._row = Verb.SAMPLE, RowKind.TOKEN, _pick(h)
        elif kind == 6:
            pairs = np.array([_pick(h), _pick(h >> 5)], np.uint32), np.array([0.5, -1.0], np.float32)
            self._row = Verb.SAMPLE, RowKind.SPARSE, *(array.tobytes() for array in pairs)
        elif kind == 7:
            bias = (np.arange(self._vocabulary.vocab_size, dtype=np.int64) + h & 0xFF).astype(np.float32)
            self._row = Verb.SAMPLE, RowKind.DENSE, bias.tobytes()
        elif kind == 9:
            self._row = Verb.SAMPLE, RowKind.ALL
        elif kind != 8 or not self._row:
            mask = _mixed(h, np.arange(words, dtype=np.uint64))
            mask[0] |= 2
            mask[-1] &= (1 << (self._vocabulary.vocab_size - 32 * (words - 1))) - 1
            self._row = Verb.SAMPLE, RowKind.BITMASK, mask.tobytes()
        return self._row

    def _fold(self, x: int) -> None:
        self._hash = mix(self._hash, x)


def _mixed(h: int, x: NDArray[np.uint64]) -> NDArray[np.uint32]:
    mixed = ((np.uint64(h) ^ x) * np.uint64(0x9E3779B1)) & np.uint64(_WORD)
    return (mixed ^ mixed >> np.uint64(15)).astype(np.uint32)


def seen(answer: MidResult) -> Expected:
    """Converts an answer into the form of `Ledger.expected`."""
    if answer.verb == Verb.SPLICE:
        return Verb.SPLICE, answer.backtrack, tuple(answer.ff_tokens)
    if answer.verb == Verb.ERROR:
        assert answer.error is not None
        return Verb.ERROR, answer.error.code, answer.error.message
    if answer.verb != Verb.SAMPLE or answer.row is None:
        return (answer.verb,)
    return (Verb.SAMPLE, answer.row.kind, *_content(answer.row))


def _content(row: Row) -> tuple[object, ...]:
    if row.kind == RowKind.BITMASK:
        assert row.bits is not None
        return (row.bits.tobytes(),)
    if row.kind == RowKind.TOKEN:
        return (row.token,)
    if row.kind == RowKind.SPARSE:
        assert row.tokens is not None and row.bias is not None
        return row.tokens.tobytes(), row.bias.tobytes()
    if row.kind == RowKind.DENSE:
        assert row.bias is not None
        return (row.bias.tobytes(),)
    return ()
