"""Spelling bytes as tokens by longest match, for what the model's own tokenizer cannot take."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from aicirt.errors import VocabularyError

#: tokens are looked up by their first bytes, so that few lengths have to be tried at a position
_PREFIX = 2


class Speller:
    """Turns any bytes into tokens whose bytes, concatenated, are exactly these.

    `tokens` holds the bytes of every token, by id; empty ones (special, unused) are never used.
    Of several tokens with the same bytes the highest id is taken: byte-fallback tokens come
    first in the vocabularies that have them, and the ordinary token is the one that models use.
    """

    def __init__(self, tokens: Iterable[bytes]) -> None:
        self._ids = {piece: token for token, piece in enumerate(tokens) if piece}
        lengths: defaultdict[bytes, set[int]] = defaultdict(set)
        for piece in self._ids:
            lengths[piece[:_PREFIX]].add(len(piece))
        self._lengths: dict[bytes, Sequence[int]] = {}
        for prefix, found in lengths.items():
            # A token of one byte is a match before any second byte.
            shorter = lengths.get(prefix[:1], set()) if len(prefix) == _PREFIX else set()
            self._lengths[prefix] = sorted(found | shorter, reverse=True)

    def __call__(self, data: bytes) -> list[int]:
        """The tokens of `data`: the longest token at each position from which the rest can be spelled.

        Raises VocabularyError, with the offset in `detail["offset"]`, if no sequence of tokens
        has these bytes.
        """
        tokens: list[int] = []
        at = 0
        while at < len(data):
            length = next(self._matches(data, at), 0)
            if not length:
                return self._spell_carefully(data)
            tokens.append(self._ids[data[at : at + length]])
            at += length
        return tokens

    def _matches(self, data: bytes, at: int) -> Iterator[int]:
        """Lengths of the tokens that match at `at`, longest first."""
        prefix = data[at : at + _PREFIX]
        lengths = self._lengths.get(prefix) or self._lengths.get(prefix[:1], ())
        return (n for n in lengths if at + n <= len(data) and data[at : at + n] in self._ids)

    def _spell_carefully(self, data: bytes) -> list[int]:
        """Longest match that never runs into a dead end; the time is that of looking at every position."""
        spellable = bytearray(len(data) + 1)
        spellable[len(data)] = 1
        for at in range(len(data) - 1, -1, -1):
            spellable[at] = any(spellable[at + n] for n in self._matches(data, at))
        if not spellable[0]:
            raise self._unspellable(data)
        tokens: list[int] = []
        at = 0
        while at < len(data):
            length = next(n for n in self._matches(data, at) if spellable[at + n])
            tokens.append(self._ids[data[at : at + length]])
            at += length
        return tokens

    def _unspellable(self, data: bytes) -> VocabularyError:
        """Names the first position that no sequence of tokens gets beyond."""
        reached = {0}
        furthest = 0
        for at in range(len(data)):
            if at in reached:
                furthest = at
                reached.update(at + n for n in self._matches(data, at))
        return VocabularyError(
            f"the vocabulary cannot spell byte 0x{data[furthest]:02x} at offset {furthest}: "
            f"no token fits {data[furthest : furthest + 16]!r}",
            offset=furthest,
        )
