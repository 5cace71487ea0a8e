"""Byte-exact vocabularies: the bytes that each token id of a tokenizer stands for."""

from __future__ import annotations

from pyaici.tokens.load import load_vocabulary
from pyaici.tokens.token_lists import read_rank_file, vocabulary_from_ranks
from pyaici.tokens.vocabulary import TokenizerBlob, Vocabulary

__all__ = ["TokenizerBlob", "Vocabulary", "load_vocabulary", "read_rank_file", "vocabulary_from_ranks"]
