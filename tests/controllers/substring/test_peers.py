"""Allowed bytes, compared with llguidance's substrings of characters along random texts.

Bytes alone: where text is forced llguidance allows only the token that it would take.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import llguidance
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask

from tests.controllers.runners.host import Mid
from tests.controllers.substring.conftest import BYTES, EOS, WORDS, Substring, allowed


class Tokens:
    """The test's vocabulary, for llguidance."""

    eos_token_id = EOS
    bos_token_id = None
    unk_token_id = None
    tokens: list[bytes] = [*BYTES, *[b"?"] * len(WORDS), b"<eos>"]  # noqa: RUF012
    special_token_ids: list[int] = [EOS]  # noqa: RUF012

    def __call__(self, text: str | bytes) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)


TOKENIZER = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Tokens()), n_vocab=EOS + 1)


class Peer:
    """llguidance at the start of a substring of `text`."""

    def __init__(self, text: str) -> None:
        grammar = f"start: %regex {json.dumps({'substring_chars': text})}"
        self.matcher = llguidance.LLMatcher(TOKENIZER, llguidance.LLMatcher.grammar_from_lark(grammar))
        assert not self.matcher.is_error(), self.matcher.get_error()
        self.mask = allocate_token_bitmask(1, EOS + 1)

    def allowed(self) -> list[int]:
        if self.matcher.is_stopped():
            return [EOS]
        fill_next_token_bitmask(self.matcher, self.mask, 0)
        assert not self.matcher.is_error(), self.matcher.get_error()
        return [t for t in (*range(256), EOS) if int(self.mask[0, t >> 5]) >> (t & 31) & 1]

    def append(self, token: int) -> None:
        assert self.matcher.consume_token(token)


def single(mid: Mid) -> list[int]:
    return [token for token in allowed(mid) if token < 256 or token == EOS]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.one_of(st.text("ab", min_size=1), st.text("a \né中乭", min_size=1), st.text(min_size=1)))
def test_the_same_tokens(substring: Callable[[str | bytes], Substring], text: str) -> None:
    rng = random.Random(text)
    peer = Peer(text)
    with substring(json.dumps({"text": text})).start() as guest:
        ours = single(guest.step().row)
        assert ours == [token for token in peer.allowed() if token != EOS], "only the peer's may be empty"
        for _ in range(20):
            tokens = [token for token in ours if token != EOS]
            if not tokens:
                break
            token = rng.choice(tokens)
            peer.append(token)
            ours = single(guest.step([token], sampled=True).row)
            assert ours == peer.allowed(), (text, token)
