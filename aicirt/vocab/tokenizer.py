"""The model's tokenizer for controllers: turns any bytes into tokens with exactly these bytes."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Any

from aicirt.contract.errors import VocabularyError

#: maximum number of cached words; texts repeat their words
_REMEMBERED = 1 << 14


class RankEncoder:
    """Splits text into words, then merges the adjacent pair with the lowest id until no pair is a token.

    `tokens` holds the bytes of every token, by id; the ids in `mergeable` are ordered by rank.
    `split` cuts text into words (the pattern of the encoding).
    """

    def __init__(
        self, tokens: Sequence[bytes], mergeable: range, split: Callable[[str], Iterable[str]]
    ) -> None:
        self._ranks = {tokens[token]: token for token in mergeable if tokens[token]}
        self._split = split
        self._words: dict[bytes, list[int]] = {}

    def __call__(self, text: str) -> list[int]:
        """Returns the tokens of `text`. Raises VocabularyError if a byte has no token."""
        tokens: list[int] = []
        for word in self._split(text):
            tokens += self._encode(word.encode())
        return tokens

    def _encode(self, word: bytes) -> list[int]:
        if word in self._ranks:
            return [self._ranks[word]]
        tokens = self._words.get(word)
        if tokens is None:
            tokens = self._merge(word)
            if len(self._words) < _REMEMBERED and len(word) < 64:
                self._words[word] = tokens
        return tokens

    def _merge(self, word: bytes) -> list[int]:
        """Returns the tokens of a word in O(n log n) time. Merges the leftmost of equal pairs first."""
        ranks = self._ranks
        size = len(word)
        # Piece i covers word[i:end[i]]; the previous piece starts at before[i]. end[i] = 0: merged away.
        end = [*range(1, size + 1), 0]
        before = list(range(-1, size))
        pairs = [
            (rank, i, i + 2) for i in range(size - 1) if (rank := ranks.get(word[i : i + 2])) is not None
        ]
        heapify(pairs)
        while pairs:
            _, left, stop = heappop(pairs)
            middle = end[left]
            if not middle or middle >= size or end[middle] != stop:
                continue  # one of the two has since been merged with another piece
            end[left], end[middle] = stop, 0
            before[stop] = left
            if stop < size and (rank := ranks.get(word[left : end[stop]])) is not None:
                heappush(pairs, (rank, left, end[stop]))
            previous = before[left]
            if previous >= 0 and (rank := ranks.get(word[previous:stop])) is not None:
                heappush(pairs, (rank, previous, stop))
        tokens: list[int] = []
        at = 0
        while at < size:
            token = ranks.get(word[at : end[at]])
            if token is None:
                raise VocabularyError(f"this vocabulary has no token for byte 0x{word[at]:02x}")
            tokens.append(token)
            at = end[at]
        return tokens


#: tokens are looked up by this many first bytes, so that few lengths need to be tried at a position
_PREFIX = 2


class Speller:
    """Turns any bytes into tokens whose concatenated bytes are exactly these.

    `tokens` holds the bytes of every token, by id; empty ones (special, unused) are never used.
    Of several tokens with the same bytes the highest id is used: byte-fallback tokens come
    first in the vocabularies that have them, and models use the ordinary token.
    """

    def __init__(self, tokens: Iterable[bytes]) -> None:
        self._ids = {piece: token for token, piece in enumerate(tokens) if piece}
        lengths: defaultdict[bytes, set[int]] = defaultdict(set)
        for piece in self._ids:
            lengths[piece[:_PREFIX]].add(len(piece))
        self._lengths: dict[bytes, Sequence[int]] = {}
        for prefix, found in lengths.items():
            # A token of one byte matches before any second byte.
            shorter = lengths.get(prefix[:1], set()) if len(prefix) == _PREFIX else set()
            self._lengths[prefix] = sorted(found | shorter, reverse=True)

    def __call__(self, data: bytes) -> list[int]:
        """Returns the tokens of `data`: at each position the longest one after which the rest can be spelled.

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
        """Returns the lengths of the tokens that match at `at`, longest first."""
        prefix = data[at : at + _PREFIX]
        lengths = self._lengths.get(prefix) or self._lengths.get(prefix[:1], ())
        return (n for n in lengths if at + n <= len(data) and data[at : at + n] in self._ids)

    def _spell_carefully(self, data: bytes) -> list[int]:
        """Returns the longest matches that avoid dead ends; takes the time of matching at every position."""
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
        """Returns an error with the first position that no sequence of tokens can pass."""
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


#: bytes that are not UTF-8, as `surrogateescape` decodes them
_INVALID = "\udc80-\udcff"


class BytesTokenizer:
    """Tokenizes bytes; `exact` means that valid text gives the tokens that the model was trained on.

    Valid UTF-8 goes to the model's tokenizer. The longest matching tokens are used for bytes that are
    not UTF-8, and where the tokenizer's tokens do not have exactly these bytes, because it replaces or drops
    a character.
    """

    def __init__(
        self,
        tokens: Sequence[bytes],
        encode: Callable[[str], list[int]] | None = None,
        *,
        exact: bool,
        confused: str = "",
    ) -> None:
        self.exact = exact
        self._tokens = tokens
        self._encode = encode
        # built eagerly: otherwise the first guest that needs it, and with it all sequences, would wait
        self._speller = Speller(tokens)
        # `confused`: characters that represent another one inside tokens, as U+2581 represents a space.
        self._foreign = re.compile(f"([{_INVALID}{re.escape(confused)}]+)")

    def __call__(self, data: bytes) -> list[int]:
        """Returns the tokens of `data`. Raises VocabularyError if no sequence of tokens has these bytes."""
        if self._encode is None:
            return self._speller(data)
        tokens: list[int] = []
        try:
            # Every second part is a match of the separator.
            for number, part in enumerate(self._foreign.split(data.decode("utf-8", "surrogateescape"))):
                raw = part.encode("utf-8", "surrogateescape")
                found = self._encode_text(part, raw) if number % 2 == 0 else None
                tokens += self._speller(raw) if found is None else found
        except VocabularyError:
            # A part that cannot be spelled alone may need a token that crosses its edge.
            return self._speller(data)
        return tokens

    def _encode_text(self, text: str, raw: bytes) -> list[int] | None:
        """Returns the tokens of valid text, or None if the tokenizer changes the text or fails."""
        if not text:
            return []
        assert self._encode is not None
        try:
            found = self._encode(text)
        except BaseException as error:
            if _is_of_package(error):
                return None
            raise
        limit = len(self._tokens)
        if any(token >= limit for token in found):
            return None
        return found if b"".join([self._tokens[token] for token in found]) == raw else None


def load_tokenizer(kind: str, data: bytes, tokens: Sequence[bytes]) -> BytesTokenizer:
    """Loads the tokenizer that a client described; `tokens` holds the bytes of every token, by id.

    Special and unused tokens must have empty bytes. Loading may take seconds for the
    largest vocabularies. Raises VocabularyError for an unknown kind or invalid data.
    """
    if kind == "longest":
        return BytesTokenizer(tokens, exact=True)
    if kind == "greedy":
        return BytesTokenizer(tokens, exact=False)
    if kind not in ("tokenizers", "ranks"):
        raise VocabularyError(f"unknown kind of tokenizer {kind!r}: use tokenizers, ranks, longest or greedy")
    try:
        import tokenizers
    except ImportError:
        return BytesTokenizer(tokens, exact=False)
    try:
        if kind == "ranks":
            return _by_ranks(tokenizers, json.loads(data), tokens)
        return _by_tokenizers(tokenizers, data, tokens)
    except BaseException as error:
        if not _is_of_package(error):
            raise
        raise VocabularyError(
            f"the package tokenizers {tokenizers.__version__} cannot read the tokenizer: {error}; "
            "install the same version of it for the runtime and the client"
        ) from error


def _is_of_package(error: BaseException) -> bool:
    """Returns whether an error may be the package's: its panics are no Exception, and have no public name."""
    return isinstance(error, Exception) or type(error).__module__ == "pyo3_runtime"


def _by_ranks(tokenizers: Any, spec: dict[str, Any], tokens: Sequence[bytes]) -> BytesTokenizer:
    splitter = tokenizers.pre_tokenizers.Split(tokenizers.Regex(spec["pattern"]), "isolated")

    def split(text: str) -> list[str]:
        return [word for word, _ in splitter.pre_tokenize_str(text)]

    return BytesTokenizer(tokens, RankEncoder(tokens, range(spec["first"], spec["end"]), split), exact=True)


def _by_tokenizers(tokenizers: Any, data: bytes, tokens: Sequence[bytes]) -> BytesTokenizer:
    tokenizer = tokenizers.Tokenizer.from_buffer(data)
    tokenizer.encode_special_tokens = True  # as ordinary text

    def encode(text: str) -> list[int]:
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    return BytesTokenizer(tokens, encode, exact=True, confused=_stand_ins(tokenizer))


def _stand_ins(tokenizer: Any) -> str:
    """Returns the single characters by which the normalizer or pre-tokenizer replaces others."""
    found = set()
    whole = (tokenizer.normalizer, tokenizer.pre_tokenizer)
    parts = [json.loads(part.__getstate__()) for part in whole if part is not None]
    while parts:
        part = parts.pop()
        parts += part.get("normalizers", []) + part.get("pretokenizers", [])
        if part["type"] == "Replace":
            found.add(part["content"])
        elif part["type"] == "Metaspace":
            found.add(part["replacement"])
    return "".join(sorted(char for char in found if len(char) == 1))
