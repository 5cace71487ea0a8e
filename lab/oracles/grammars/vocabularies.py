"""The vocabularies for tests of grammars."""

from __future__ import annotations

from lab.runners.host import Vocab

#: the characters of `few_tokens`
LETTERS = "abc"


def byte_vocab() -> Vocab:
    """All bytes, some longer tokens, and an end."""
    words = [b"foo", b"if", b" x", b"ab", b"abc", b"\n\n", b'": "', b"</", "é".encode()]
    tokens = [bytes([b]) for b in range(256)] + words
    return Vocab([*tokens, b"<eos>"], eos=[len(tokens)])


def few_tokens(*, blanks: bool = False) -> Vocab:
    """Some texts of LETTERS, most of them of several bytes, and an end."""
    texts = ["a", "b", "c", "ab", "ba", "bb", "ca", "abc", "cab", "aab", "bcab", "abab"]
    if blanks:
        texts += [" ", "  ", " a", "b ", "a b", " bc", "c a "]
    tokens = [text.encode() for text in texts]
    return Vocab([*tokens, b"<eos>"], eos=[len(tokens)])
