"""Other engines, which run natively: llguidance, xgrammar, outlines-core, kbnf."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cached_property
from typing import Any

import kbnf
import numpy as np
import outlines_core
import xgrammar
from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from aicirt.worker.hostapi import LoadedVocabulary
from lab.contestants import Contestant, Refused
from lab.contestants.llguidance import llguidance_tokenizer
from pyaici.tokens import Vocabulary


class Natives:
    """A vocabulary in the form that each engine needs, built when it is first used."""

    def __init__(self, vocabulary: Vocabulary, loaded: LoadedVocabulary) -> None:
        self.vocabulary = vocabulary
        self._loaded = loaded
        self.mask_words = (vocabulary.vocab_size + 31) // 32

    @cached_property
    def llguidance(self) -> LLTokenizer:
        return llguidance_tokenizer(self.vocabulary, self._loaded)

    @cached_property
    def xgrammar(self) -> xgrammar.TokenizerInfo:
        special = self.vocabulary.special_names
        tokens = [b"" if t in special else text for t, text in enumerate(self.vocabulary.tokens)]
        return xgrammar.TokenizerInfo(
            tokens,
            xgrammar.VocabType.RAW,
            vocab_size=self.vocabulary.vocab_size,
            stop_token_ids=list(self.vocabulary.eos),
        )

    @cached_property
    def outlines(self) -> outlines_core.Vocabulary:
        return outlines_core.Vocabulary(self.vocabulary.eos[0], self._ids())

    @cached_property
    def kbnf(self) -> kbnf.Vocabulary:
        # kbnf keeps one of several tokens with the same text: the last one, which models use
        texts = {ids[-1]: text for text, ids in self._ids().items()}
        return kbnf.Vocabulary(
            {token: kbnf.Token(text) for token, text in texts.items()},
            {token: text.decode("utf-8", "replace") for token, text in texts.items()},
        )

    def _ids(self) -> dict[bytes, list[int]]:
        ids: dict[bytes, list[int]] = {}
        for token, text in enumerate(self.vocabulary.tokens):
            if text and token not in self.vocabulary.special_names:
                ids.setdefault(text, []).append(token)
        return ids


#: llguidance's default limit, 50 000 items in a mask, is too low for some of the grammars
_LIMITS = LLParserLimits(step_max_items=2_000_000)


class Llguidance(Contestant):
    """llguidance. `grammar` is the result of one of LLMatcher.grammar_from_...."""

    name = "llguidance"

    def __init__(self, natives: Natives, grammar: str) -> None:
        self._tokenizer, self._grammar = natives.llguidance, grammar
        self._words = np.zeros(natives.mask_words, np.int32)
        self._place = self._words.ctypes.data, self._words.nbytes

    def compile(self) -> None:
        self._matcher = LLMatcher(self._tokenizer, self._grammar, log_level=0, limits=_LIMITS)
        if self._matcher.is_error():
            raise Refused(self._matcher.get_error())

    def reset(self) -> None:
        self._matcher.reset()

    def mask(self) -> None:
        self._matcher.unsafe_compute_mask_ptr(*self._place)

    def accept(self, token: int) -> None:
        self._matcher.consume_token(token)

    def row(self) -> bytes:
        if self._matcher.is_error():
            raise Refused(self._matcher.get_error())
        return self._words.tobytes()


class Xgrammar(Contestant):
    """xgrammar. `compile_with` calls one of the compiler's methods."""

    name = "xgrammar"

    def __init__(
        self, natives: Natives, compile_with: Callable[[xgrammar.GrammarCompiler], xgrammar.CompiledGrammar]
    ) -> None:
        self._tokenizer, self._compile_with = natives.xgrammar, compile_with
        self._words = np.zeros((1, natives.mask_words), np.int32)

    @classmethod
    def of_schema(cls, natives: Natives, schema: Any) -> Xgrammar:
        """Returns a contestant for a JSON schema: additional properties as it allows them, any blanks."""
        text = json.dumps(schema)

        def compile_with(compiler: xgrammar.GrammarCompiler) -> xgrammar.CompiledGrammar:
            return compiler.compile_json_schema(text, any_whitespace=True, strict_mode=False)

        return cls(natives, compile_with)

    def compile(self) -> None:
        compiler = xgrammar.GrammarCompiler(self._tokenizer, max_threads=1, cache_enabled=False)
        try:
            self._matcher = xgrammar.GrammarMatcher(self._compile_with(compiler))
        except RuntimeError as error:
            raise Refused(str(error)) from error

    def reset(self) -> None:
        self._matcher.reset()

    def mask(self) -> None:
        if not self._matcher.fill_next_token_bitmask(self._words):
            self._words[:] = -1

    def accept(self, token: int) -> None:
        self._matcher.accept_token(token)

    def row(self) -> bytes:
        return self._words.tobytes()


class OutlinesCore(Contestant):
    """outlines-core with a regular expression. `compile` computes the masks of all states."""

    name = "outlines"

    def __init__(self, natives: Natives, pattern: str) -> None:
        self._vocabulary, self._pattern = natives.outlines, pattern
        self._words = np.zeros(natives.mask_words, np.int32)
        self._place = self._words.ctypes.data, self._words.size, 4

    def compile(self) -> None:
        try:
            self._index = outlines_core.Index(self._pattern, self._vocabulary)
        except ValueError as error:
            raise Refused(str(error)) from error

    def reset(self) -> None:
        self._guide = outlines_core.Guide(self._index)

    def mask(self) -> None:
        self._guide.write_mask_into(*self._place)

    def accept(self, token: int) -> None:
        self._guide.advance(token, return_tokens=False)

    def row(self) -> bytes:
        return self._words.tobytes()


class Kbnf(Contestant):
    """kbnf in its reference configuration, with a grammar in KBNF. `reset` keeps the cached masks."""

    name = "kbnf"

    def __init__(self, natives: Natives, grammar: str) -> None:
        self._vocabulary, self._grammar = natives.kbnf, grammar
        self._words = np.zeros(natives.mask_words, np.int32)

    def compile(self) -> None:
        try:
            self._engine = kbnf.Engine(self._grammar, self._vocabulary)
        except ValueError as error:
            raise Refused(str(error)) from error

    def reset(self) -> None:
        self._engine.reset()

    def mask(self) -> None:
        self._engine.compute_allowed_token_ids()
        self._engine.fill_torch_bitmask(self._words.ctypes.data)

    def accept(self, token: int) -> None:
        self._engine.try_accept_new_token(token)

    def row(self) -> bytes:
        return self._words.tobytes()
