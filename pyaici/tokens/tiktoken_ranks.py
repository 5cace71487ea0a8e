"""Vocabularies from tiktoken encodings and rank files."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aicirt.contract.errors import VocabularyError
from pyaici.tokens.pattern import oniguruma_pattern
from pyaici.tokens.vocabulary import TokenizerBlob, Vocabulary, tokens_by_id


def vocabulary_from_ranks(
    ranks: Mapping[bytes, int],
    *,
    name: str,
    pattern: str | None = None,
    special: Mapping[str, int] | None = None,
    eos: tuple[int, ...] = (),
    bos: int | None = None,
    pad: int | None = None,
    unk: int | None = None,
    vocab_size: int = 0,
) -> Vocabulary:
    """Returns the vocabulary of a byte pair encoding whose token ids are merge ranks.

    `pattern` is the regular expression that splits text into words; without it the runtime
    tokenizes by longest match. `vocab_size` is the width of the logits, if it is larger than the highest
    id plus 1. Raises VocabularyError if ranks are not unique, or if a special token has the id of a rank.
    """
    if not ranks:
        raise VocabularyError(f"{name}: the encoding has no ranks")
    first, end = min(ranks.values()), max(ranks.values()) + 1
    if len(set(ranks.values())) != len(ranks):
        raise VocabularyError(f"{name}: ranks must be unique")
    special_names = {token: text for text, token in (special or {}).items()}
    pieces = {token: piece for piece, token in ranks.items()}
    tokens = tokens_by_id({**pieces, **{token: pieces.get(token, b"") for token in special_names}})
    blob = TokenizerBlob()
    if pattern is not None:
        spec = {"pattern": oniguruma_pattern(pattern), "first": first, "end": end}
        blob = TokenizerBlob("ranks", json.dumps(spec).encode())
    return Vocabulary(
        tokens=tokens,
        special_names=special_names,
        eos=eos,
        bos=bos,
        pad=pad,
        unk=unk,
        vocab_size=vocab_size,
        name=name,
        tokenizer=blob,
    )


def vocabulary_from_encoding(encoding: Any) -> Vocabulary:
    """Returns the vocabulary of a `tiktoken.Encoding`, in which `<|endoftext|>`, if present, ends a text."""
    special = dict(encoding._special_tokens)
    end = special.get("<|endoftext|>")
    return vocabulary_from_ranks(
        encoding._mergeable_ranks,
        name=encoding.name,
        pattern=encoding._pat_str,
        special=special,
        eos=() if end is None else (end,),
        vocab_size=encoding.n_vocab,
    )


def read_rank_file(path: Path) -> dict[bytes, int]:
    """Returns token bytes -> rank from a .tiktoken file, whose lines are base64, a space and the rank.

    Raises VocabularyError with the number of an invalid line.
    """
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if not line:
            continue
        try:
            piece, rank = line.split()
            ranks[base64.b64decode(piece, validate=True)] = int(rank)
        except (ValueError, binascii.Error) as error:
            raise VocabularyError(f"{path}, line {number}: expected base64 and a rank ({error})") from error
    return ranks
