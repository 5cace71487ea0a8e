"""Vocabularies from the text files of RWKV World models."""

from __future__ import annotations

import ast
from pathlib import Path

from aicirt.contract.errors import VocabularyError
from pyaici.tokens.vocabulary import TokenizerBlob, Vocabulary, tokens_by_id

#: id of the end of a text; RWKV World files begin with id 1
_END = 0


def vocabulary_from_rwkv(path: Path, name: str) -> Vocabulary:
    """Reads the vocabulary from a file with an id, a Python literal and its length in bytes on each line.

    The literal is a string or bytes. The tokenizer of these models takes the longest match. Their logits
    are wider (65536) than the file. Raises VocabularyError with the line number.
    """
    found: dict[int, bytes] = {}
    for number, line in enumerate(path.read_text("utf-8").split("\n"), 1):
        if not line.strip():
            continue
        try:
            token, rest = line.split(" ", 1)
            literal, length = rest.rsplit(" ", 1)
            value = ast.literal_eval(literal)
            piece = value.encode() if isinstance(value, str) else bytes(value)
            if len(piece) != int(length):
                raise ValueError(f"the literal has {len(piece)} bytes, but the line says {length}")
            found[int(token)] = piece
        except (ValueError, SyntaxError, TypeError) as error:
            raise VocabularyError(
                f"{path}, line {number}: expected an id, a literal and a length ({error})"
            ) from error
    if not found or min(found) <= _END:
        raise VocabularyError(f"{path}: ids must begin at {_END + 1}")
    return Vocabulary(
        tokens=tokens_by_id(found),
        special_names={_END: "<|endoftext|>"},
        eos=(_END,),
        name=name,
        tokenizer=TokenizerBlob("longest"),
    )
