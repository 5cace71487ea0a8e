"""llguidance, the fastest native engine for masks, on our vocabularies: the baseline for masks."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

import numpy as np
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper
from numpy.typing import NDArray

from aicirt.worker.hostapi import LoadedVocabulary
from lab.inputs.constraints import Constraint
from pyaici.tokens import Vocabulary


class _Tokens:
    """The tokenizer interface of llguidance, with the bytes of our tokens and the model's own tokenizer."""

    def __init__(self, vocabulary: Vocabulary, loaded: LoadedVocabulary) -> None:
        special = vocabulary.special_names
        self.eos_token_id = vocabulary.eos[0]
        self.bos_token_id = vocabulary.bos
        self.special_token_ids = sorted(special)
        # llguidance marks special tokens with a first byte that occurs in no text
        self.tokens = [
            b"\xff" + special[token].encode() if token in special else text
            for token, text in enumerate(vocabulary.tokens)
        ]
        self._loaded = loaded

    def __call__(self, text: bytes | str) -> list[int]:
        data = text if isinstance(text, bytes) else text.encode()
        tokens: list[int] = np.frombuffer(self._loaded.tokenize(data), np.uint32).tolist()
        return tokens


def llguidance_tokenizer(vocabulary: Vocabulary, loaded: LoadedVocabulary) -> LLTokenizer:
    """Returns a tokenizer with our tokens, which tokenizes text as the model does."""
    return LLTokenizer(TokenizerWrapper(_Tokens(vocabulary, loaded)))


class Llguidance:
    """Matchers for one vocabulary."""

    def __init__(self, vocabulary: Vocabulary, loaded: LoadedVocabulary) -> None:
        self._tokenizer = llguidance_tokenizer(vocabulary, loaded)
        self.mask: NDArray[np.int32] = np.zeros((vocabulary.vocab_size + 31) // 32, np.int32)

    def matcher(self, constraint: Constraint) -> LLMatcher:
        """Returns a fresh matcher. Raises ValueError if llguidance refuses the constraint."""
        if constraint.until:
            stop = re.escape(constraint.pattern).replace("/", r"\/")
            grammar = LLMatcher.grammar_from_lark(f"start: text\ntext[lazy]: /(?s:.*){stop}/")
        else:
            grammar = LLMatcher.grammar_from_regex(constraint.pattern)
        matcher = LLMatcher(self._tokenizer, grammar)
        if matcher.is_error():
            raise ValueError(f"llguidance refuses {constraint.name}: {matcher.get_error()}")
        return matcher

    def walk(self, matcher: LLMatcher, tokens: Sequence[int]) -> tuple[float, list[bytes]]:
        """Returns the seconds for the masks before each token, with consuming the tokens, and the masks."""
        masks, taken, previous = [], 0.0, None
        address, nbytes = self.mask.ctypes.data, self.mask.nbytes
        for token in tokens:
            begin = time.perf_counter()
            if previous is not None:
                matcher.consume_token(previous)
            matcher.unsafe_compute_mask_ptr(address, nbytes)
            taken += time.perf_counter() - begin
            masks.append(self.mask.tobytes())
            previous = token
        return taken, masks
