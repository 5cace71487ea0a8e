"""Masks of random grammars compared with those of xgrammar, which reads GBNF too."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import xgrammar

from tests.controllers.gbnf.test_random import random_terminals
from tests.controllers.gbnf.write import gbnf
from tests.controllers.grammars.expressions import Grammar, random_grammar
from tests.controllers.grammars.properties import every_rule_has_a_text, is_recursive
from tests.controllers.grammars.vocabularies import few_tokens
from tests.controllers.grammars.walk import Controller

Make = Callable[[str], Controller]


class Xgrammar:
    """The other engine with the same vocabulary."""

    def __init__(self) -> None:
        vocab = few_tokens()
        self.size, self.eos = len(vocab.tokens), vocab.eos[0]
        info = xgrammar.TokenizerInfo(
            vocab.tokens, xgrammar.VocabType.RAW, vocab_size=self.size, stop_token_ids=vocab.eos
        )
        self._compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)

    def matcher(self, text: str) -> xgrammar.GrammarMatcher:
        return xgrammar.GrammarMatcher(self._compiler.compile_grammar(text))

    def mask(self, matcher: xgrammar.GrammarMatcher) -> list[int]:
        bits = xgrammar.allocate_token_bitmask(1, self.size)
        matcher.fill_next_token_bitmask(bits)
        return [t for t in range(self.size) if int(bits[0, t // 32]) >> (t % 32) & 1]


def xgrammar_is_exact(grammar: Grammar) -> bool:
    """Returns whether xgrammar's masks are exact for a grammar.

    For recursive rules, it forbids some longer tokens, such as `abab` after `bbb` with
    `root ::= "bbb" root "ab" | "ab"`. It allows the beginnings of rules without a text, but these tests
    have none.
    """
    return not is_recursive(grammar)


@pytest.fixture(scope="module")
def peer() -> Xgrammar:
    return Xgrammar()


@pytest.mark.parametrize("seed", range(4))
def test_random_grammars(small: Make, peer: Xgrammar, seed: int) -> None:
    rng, compared, exactly = random.Random(100 + seed), 0, 0
    while compared < 120:
        terminals, recursive = random_terminals(rng), rng.random() < 0.4
        grammar = random_grammar(rng, "root", terminals, recursive=recursive)
        if not every_rule_has_a_text(grammar):
            continue
        text = gbnf(grammar)
        exact = xgrammar_is_exact(grammar)
        exactly += exact
        compared += walk(rng, small(text), peer, text, exact)
    assert exactly >= 5


def walk(rng: random.Random, made: Controller, peer: Xgrammar, text: str, exact: bool) -> int:
    """Walks along one text to its end; returns the number of masks compared."""
    guest, matcher, written = made.start(), peer.matcher(text), b""
    state = made.state(guest, [])
    for count in range(8):
        if state.over:
            assert peer.mask(matcher) == [peer.eos], (text, written)
            return count
        expected = peer.mask(matcher)
        found = [*state.tokens, peer.eos] if state.end else state.tokens
        assert set(expected) <= set(found), (text, written)
        assert not exact or found == expected, (text, written)
        if not state.tokens:
            return count
        token = rng.choice(state.tokens)
        assert matcher.accept_token(token)
        written += made.bytes_of(token)
        state = made.state(guest, [token])
    return 8
