"""Masks of random grammars compared with those of llguidance, which defines the dialect."""

from __future__ import annotations

import random
from collections.abc import Callable

import llguidance
import pytest
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask

from aicirt.contract.errors import ControllerFailed
from tests.controllers.grammars.expressions import random_grammar
from tests.controllers.grammars.properties import every_rule_has_a_text
from tests.controllers.grammars.vocabularies import few_tokens
from tests.controllers.grammars.walk import Controller
from tests.controllers.lark.test_lexemes import random_terminals
from tests.controllers.lark.write import lark
from tests.controllers.runners.host import Vocab

Make = Callable[[str], Controller]
#: forced text is to be compared in all its tokens, not only in those that a tokenizer would choose
OPTIONS = '%llguidance {"no_forcing": true}\n'


class _Tokens:
    bos_token_id = unk_token_id = None

    def __init__(self, vocab: Vocab) -> None:
        self.vocab, self.tokens, self.eos_token_id = vocab, vocab.tokens, vocab.eos[0]
        self.special_token_ids = vocab.eos

    def __call__(self, text: str | bytes) -> list[int]:
        return list(self.vocab.tokenize(text if isinstance(text, bytes) else text.encode()))


class Llguidance:
    """The other engine with the same vocabulary."""

    def __init__(self, vocab: Vocab) -> None:
        self.vocab, self.eos = vocab, vocab.eos[0]
        tokens = llguidance.TokenizerWrapper(_Tokens(vocab))
        self.tokenizer = llguidance.LLTokenizer(tokens, n_vocab=len(vocab.tokens))

    def matcher(self, text: str) -> llguidance.LLMatcher:
        grammar = llguidance.LLMatcher.grammar_from_lark(text)
        made = llguidance.LLMatcher(self.tokenizer, grammar, log_level=0)
        assert not made.is_error(), made.get_error()
        return made

    def mask(self, matcher: llguidance.LLMatcher) -> list[int]:
        size = len(self.vocab.tokens)
        bits = allocate_token_bitmask(1, size)
        fill_next_token_bitmask(matcher, bits, 0)
        return [t for t in range(size) if int(bits[0, t // 32]) >> (t % 32) & 1]

    def has_end(self, matcher: llguidance.LLMatcher, token: int, most: int = 60) -> bool:
        """Returns whether a text can end soon after this token; tries some short continuations."""
        if token == self.eos:
            return True
        queue = [matcher.deep_copy()]
        queue[0].consume_token(token)
        for one in queue:
            mask = self.mask(one)
            if self.eos in mask:
                return True
            for next_ in mask:
                if len(queue) < most:
                    queue.append(one.deep_copy())
                    queue[-1].consume_token(next_)
        return False


def blank_at_an_edge(text: bytes) -> bool:
    """llguidance ignores nothing before the first lexeme and after the last one."""
    return text != text.strip(b" ")


def compare(
    rng: random.Random, made: Controller, peer: Llguidance, text: str, blanks: bool
) -> tuple[int, int]:
    """Walks along one text to its end; returns the numbers of compared and of equal masks."""
    matcher, written, same = peer.matcher(OPTIONS + text), b"", 0
    try:
        guest = made.start()
    except ControllerFailed:
        assert not any(peer.has_end(matcher, token) for token in peer.mask(matcher)), text
        return 1, 0
    state = made.state(guest, [])
    for count in range(10):
        found = {*state.tokens, peer.eos} if state.end else set(state.tokens)
        expected = set(peer.mask(matcher))
        for token in found - expected:
            bytes_ = b"" if token == peer.eos else made.bytes_of(token)
            assert blanks and blank_at_an_edge(written + bytes_), (text, written, bytes_)
        for token in expected - found:
            assert not peer.has_end(matcher, token), (text, written, made.bytes_of(token))
        same += found == expected
        shared = sorted((found & expected) - {peer.eos})
        if not shared:
            return count + 1, same
        token = rng.choice(shared)
        assert matcher.consume_token(token)
        written += made.bytes_of(token)
        state = made.state(guest, [token])
    return 10, same


@pytest.mark.parametrize("seed", range(4))
def test_random_grammars(small: Make, seed: int) -> None:
    """llguidance also allows texts that cannot be completed, such as `b` with `/b+/ "b"`."""
    rng, peer = random.Random(seed), Llguidance(few_tokens())
    compared = same = 0
    while compared < 250:
        grammar = random_grammar(rng, "start", random_terminals(rng))
        if every_rule_has_a_text(grammar):
            text = lark(grammar)
            counts = compare(rng, small(text), peer, text, blanks=False)
            compared, same = compared + counts[0], same + counts[1]
    assert same > 0.85 * compared


@pytest.mark.parametrize("seed", range(4))
def test_random_grammars_with_blanks(spaced: Make, seed: int) -> None:
    rng, vocab = random.Random(seed), few_tokens(blanks=True)
    peer = Llguidance(vocab)
    compared = same = 0
    while compared < 250:
        grammar = random_grammar(rng, "start", random_terminals(rng))
        if every_rule_has_a_text(grammar):
            text = lark(grammar) + "\n%ignore / +/"
            counts = compare(rng, spaced(text), peer, text, blanks=True)
            compared, same = compared + counts[0], same + counts[1]
    assert same > 0.3 * compared
