"""Other engines that read the same syntax, each following one text."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from typing import Any

import llguidance
import outlines_core
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask

from lab.runners.host import Vocab


def _set_bits(bits: Any, size: int) -> set[int]:
    return {t for t in range(size) if int(bits[0, t // 32]) >> (t % 32) & 1}


class _Tokens:
    """A vocabulary, for llguidance."""

    bos_token_id = unk_token_id = None

    def __init__(self, vocab: Vocab) -> None:
        self._vocab, self.tokens, self.eos_token_id = vocab, vocab.tokens, vocab.eos[0]
        self.special_token_ids = vocab.eos

    def __call__(self, text: str | bytes) -> list[int]:
        return list(self._vocab.tokenize(text if isinstance(text, bytes) else text.encode()))


class Llguidance:
    """llguidance. A source is a grammar from one of the functions `grammar_from_...` of LLMatcher."""

    name = "llguidance"

    def __init__(self, vocab: Vocab) -> None:
        self._size, self.eos = len(vocab.tokens), vocab.eos[0]
        tokens = llguidance.TokenizerWrapper(_Tokens(vocab))
        self._tokenizer = llguidance.LLTokenizer(tokens, n_vocab=self._size)

    def begin(self, source: str) -> bool:
        self._matcher = llguidance.LLMatcher(self._tokenizer, source, log_level=0)
        return not self._matcher.is_error()

    def mask(self) -> set[int] | None:
        if self._matcher.is_error():
            return None
        if self._matcher.is_stopped():
            return {self.eos}
        bits = allocate_token_bitmask(1, self._size)
        fill_next_token_bitmask(self._matcher, bits, 0)
        return None if self._matcher.is_error() else _set_bits(bits, self._size)

    def accept(self, token: int) -> None:
        self._matcher.consume_token(token)


class Xgrammar:
    """xgrammar, with grammars in GBNF."""

    name = "xgrammar"

    def __init__(self, vocab: Vocab) -> None:
        import xgrammar  # takes seconds, since it loads torch

        self._xgrammar, self._size = xgrammar, len(vocab.tokens)
        info = xgrammar.TokenizerInfo(
            vocab.tokens, xgrammar.VocabType.RAW, vocab_size=self._size, stop_token_ids=vocab.eos
        )
        self._compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)

    def begin(self, source: str) -> bool:
        try:
            self._matcher = self._xgrammar.GrammarMatcher(self._compiler.compile_grammar(source))
        except RuntimeError:
            return False
        return True

    def mask(self) -> set[int] | None:
        bits = self._xgrammar.allocate_token_bitmask(1, self._size)
        self._matcher.fill_next_token_bitmask(bits)
        return _set_bits(bits, self._size)

    def accept(self, token: int) -> None:
        assert self._matcher.accept_token(token)


class Outlines:
    """outlines-core, with regular expressions."""

    name = "outlines-core"

    def __init__(self, vocab: Vocab) -> None:
        self._eos = vocab.eos[0]
        self._vocabulary = outlines_core.Vocabulary(self._eos, {vocab.tokens[t]: [t] for t in vocab.text})

    def begin(self, source: str) -> bool:
        try:
            self._guide = outlines_core.Guide(outlines_core.Index(source, self._vocabulary))
        except ValueError:
            return False
        return True

    def mask(self) -> set[int] | None:
        return set(self._guide.get_tokens())

    def accept(self, token: int) -> None:
        self._guide.advance(token)


class Kbnf:
    """The package kbnf in a separate process, since it hangs or crashes for some grammars."""

    name = "kbnf"
    _SECONDS = 10

    def __init__(self, vocab: Vocab) -> None:
        self._vocab, self._process = vocab, None  # type: tuple[Vocab, subprocess.Popen[str] | None]

    def begin(self, source: str) -> bool:
        if self._process is None:
            command = [sys.executable, "-m", "lab.exactness.kbnf_process"]
            pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nothing, text=True)
            self._ask([list(map(bytes.decode, self._vocab.tokens)), self._vocab.eos[0]])
        return self._ask(source) is not None

    def mask(self) -> set[int] | None:
        found = self._ask(None)
        return None if found is None else set(found)

    def accept(self, token: int) -> None:
        self._ask(token)

    def close(self) -> None:
        if self._process:
            self._process.kill()
            self._process.communicate()
        self._process = None

    def _ask(self, what: Any) -> Any:
        """Returns the process's answer, or None if it ends or does not answer in time."""
        if self._process is None:
            return None
        assert self._process.stdin and self._process.stdout
        try:
            print(json.dumps(what), file=self._process.stdin, flush=True)
            if select.select([self._process.stdout], [], [], self._SECONDS)[0]:
                return json.loads(self._process.stdout.readline())
        except (ValueError, BrokenPipeError):
            pass
        self.close()
        return None
