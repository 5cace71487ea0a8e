"""The model's tokenizer as controllers see it: any bytes in, tokens with exactly these bytes out.

A client describes its tokenizer by a kind and a block of data:

| kind         | data                                                      | what tokenizes            |
|--------------|-----------------------------------------------------------|---------------------------|
| `tokenizers` | a tokenizer.json text without special tokens and prefixes | the `tokenizers` package  |
| `ranks`      | JSON: `pattern` (Oniguruma), `first`, `end` (ids by rank) | `RankEncoder`             |
| `longest`    | empty                                                     | longest match (exact)     |
| `greedy`     | empty                                                     | longest match (a stand-in)|

The first two need the `tokenizers` package; without it longest match stands in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from aicirt.errors import VocabularyError
from aicirt.vocab.ranks import RankEncoder
from aicirt.vocab.spell import Speller

#: bytes that are not UTF-8, as `surrogateescape` decodes them
_INVALID = "\udc80-\udcff"


class BytesTokenizer:
    """Tokenizes bytes; `exact` tells whether valid text becomes what the model was trained on.

    Valid UTF-8 goes to the model's tokenizer; if its tokens do not have exactly these bytes
    (a character that it would replace or drop), and for bytes that are not UTF-8, the longest
    matching tokens are taken.
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
        # made at once: the guest that needs it first would wait for it, and everybody with it
        self._speller = Speller(tokens)
        # `confused`: characters that stand for another one inside tokens, as U+2581 does for a space.
        self._foreign = re.compile(f"([{_INVALID}{re.escape(confused)}]+)")

    def __call__(self, data: bytes) -> list[int]:
        """Raises VocabularyError if no sequence of tokens has these bytes."""
        if self._encode is None:
            return self._speller(data)
        tokens: list[int] = []
        try:
            # Every second part is what the separator matched.
            for number, part in enumerate(self._foreign.split(data.decode("utf-8", "surrogateescape"))):
                raw = part.encode("utf-8", "surrogateescape")
                found = self._encode_text(part, raw) if number % 2 == 0 else None
                tokens += self._speller(raw) if found is None else found
        except VocabularyError:
            # A token may reach over the edge of a part that cannot be spelled alone.
            return self._speller(data)
        return tokens

    def _encode_text(self, text: str, raw: bytes) -> list[int] | None:
        """The tokens of valid text, or None if the tokenizer changes it."""
        if not text:
            return []
        assert self._encode is not None
        found = self._encode(text)
        limit = len(self._tokens)
        if any(token >= limit for token in found):
            return None
        return found if b"".join([self._tokens[token] for token in found]) == raw else None


def load_tokenizer(kind: str, data: bytes, tokens: Sequence[bytes]) -> BytesTokenizer:
    """The tokenizer that a client described; `tokens` holds the bytes of every token, by id.

    Special and unused tokens must have empty bytes there. Loading takes up to seconds for the
    largest vocabularies. Raises VocabularyError for an unknown kind or data that cannot be read.
    """
    if kind == "longest":
        return BytesTokenizer(tokens, exact=True)
    if kind == "greedy":
        return BytesTokenizer(tokens, exact=False)
    if kind not in ("tokenizers", "ranks"):
        raise VocabularyError(f"unknown kind of tokenizer {kind!r}: tokenizers, ranks, longest or greedy")
    try:
        import tokenizers
    except ImportError:
        return BytesTokenizer(tokens, exact=False)
    try:
        if kind == "ranks":
            return _by_ranks(tokenizers, json.loads(data), tokens)
        return _by_tokenizers(tokenizers, data, tokens)
    except Exception as error:  # the package raises plain Exception
        raise VocabularyError(
            f"tokenizers {tokenizers.__version__} cannot read the tokenizer: {error}; "
            "the runtime and the client need the same version of this package"
        ) from error


def _by_ranks(tokenizers: Any, spec: dict[str, Any], tokens: Sequence[bytes]) -> BytesTokenizer:
    splitter = tokenizers.pre_tokenizers.Split(tokenizers.Regex(spec["pattern"]), "isolated")

    def split(text: str) -> list[str]:
        return [word for word, _ in splitter.pre_tokenize_str(text)]

    return BytesTokenizer(tokens, RankEncoder(tokens, range(spec["first"], spec["end"]), split), exact=True)


def _by_tokenizers(tokenizers: Any, data: bytes, tokens: Sequence[bytes]) -> BytesTokenizer:
    tokenizer = tokenizers.Tokenizer.from_buffer(data)
    tokenizer.encode_special_tokens = True  # that is: as the text that they look like

    def encode(text: str) -> list[int]:
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    return BytesTokenizer(tokens, encode, exact=True, confused=_stand_ins(tokenizer))


def _stand_ins(tokenizer: Any) -> str:
    """Single characters that the normalizer or pre-tokenizer puts in the place of others."""
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
