"""Allowed next characters, compared with llguidance and outlines-core on a vocabulary of single bytes.

Both use the parser of Rust's `regex`, so they read our syntax. Where they and we are known to differ:

- Unicode: ours is newer, so whole characters are compared that all versions have; the beginning of a
  character may be allowed for the sake of a newer one.
- llguidance takes no anchors and word boundaries, outlines-core not all: there are none here.
- outlines-core finds the match that a search would report first, and counts a match one byte late. So it
  forbids texts that do match: of `|a` the text "a"; of `[0-9]+(\\.[0-9]+)?` a "." after "1". By the
  definition of a match (and by llguidance, `re` and Rust's `regex`) they are to be allowed. What it does
  allow must be allowed here.
"""

from __future__ import annotations

import random
from typing import Protocol

import llguidance
import outlines_core
import pytest
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask

from tests.controllers.regex.engine import Engine

EOS = 256
LETTERS = "é\u212aß😀\u0301αя中\u2028"


class Peer(Protocol):
    def allowed(self, text: bytes) -> set[int]:
        """The bytes, and EOS, that may follow `text`, which is allowed."""


class ByteTokens:
    """A tokenizer with a token for each byte, for llguidance."""

    eos_token_id = EOS
    bos_token_id = None
    unk_token_id = None
    tokens: list[bytes] = [bytes([b]) for b in range(256)] + [b"<eos>"]
    special_token_ids: list[int] = [EOS]  # noqa: RUF012

    def __call__(self, text: str | bytes) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)


class LlGuidance:
    tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(ByteTokens()), n_vocab=257)

    def __init__(self, pattern: str) -> None:
        self.matcher = llguidance.LLMatcher(self.tokenizer, llguidance.LLMatcher.grammar_from_regex(pattern))
        if self.matcher.is_error():
            raise ValueError(self.matcher.get_error())
        self.mask = allocate_token_bitmask(1, 257)

    def allowed(self, text: bytes) -> set[int]:
        matcher = self.matcher.deep_copy()
        assert matcher.try_consume_tokens(list(text)) == len(text)
        if matcher.is_stopped():
            return {EOS}
        fill_next_token_bitmask(matcher, self.mask, 0)
        assert not matcher.is_error(), matcher.get_error()
        return {t for t in range(257) if int(self.mask[0, t >> 5]) >> (t & 31) & 1}


class OutlinesCore:
    vocabulary = outlines_core.Vocabulary(EOS, {bytes([b]): [b] for b in range(256)})

    def __init__(self, pattern: str) -> None:
        self.index = outlines_core.Index(pattern, self.vocabulary)

    def allowed(self, text: bytes) -> set[int]:
        guide = outlines_core.Guide(self.index)
        for byte in text:
            guide.advance(byte)
        return set(guide.get_tokens())


class Ours:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def allowed(self, text: bytes) -> set[int]:
        state = self.engine.state(text)
        row = self.engine.next_states(state)
        return {b for b in range(256) if row[b]} | ({EOS} if self.engine.accepting(state) else set())


def following(engine: Peer, text: bytes) -> set[bytes]:
    """The characters that may follow `text`, and b"" for its end: ASCII, and a few others."""
    allowed = engine.allowed(text)
    found = {bytes([b]) for b in allowed if b < 128} | ({b""} if EOS in allowed else set())
    for character in LETTERS:
        data = character.encode()
        if all(data[at] in engine.allowed(text + data[:at]) for at in range(len(data))):
            found.add(data)
    return found


def compare(engine: Engine, peer: Peer, pattern: str, steps: int) -> None:
    """Along a random text, after each character."""
    rng = random.Random(pattern)
    text = b""
    for _ in range(steps):
        mine, theirs = following(Ours(engine), text), following(peer, text)
        if isinstance(peer, OutlinesCore):
            assert theirs <= mine, (pattern, text)
        else:
            assert theirs == mine, (pattern, text)
        if not theirs - {b""}:
            return
        text += rng.choice(sorted(theirs - {b""}))


COMMON = [
    "[a-z]+",
    r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?",
    r'"([^"\\\x00-\x1f\x7f]|\\(["\\/bfnrt]|u[0-9a-fA-F]{4}))*"',
    r"[a-zA-Z0-9._%+-]+@[a-zA-Z0-9-]+(\.[a-zA-Z0-9-]+)*\.[a-zA-Z]{2,10}",
    r"(?s:.*)</tag>",
    r"\w+(?: \w+){0,3}",
    r"(?i)straße|größe",
    r"[\w--\d&&[^é]]{2,4}",
    r"(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}\d+",
    r"\p{Greek}+|\p{Lu}\P{Lu}*",
    r"(?x) a b* # c",
    r"[[:alpha:]]+[^[:space:]]",
]


@pytest.mark.parametrize("peer", [LlGuidance, OutlinesCore])
@pytest.mark.parametrize("pattern", COMMON)
def test_common_patterns(engine: Engine, peer: type[LlGuidance | OutlinesCore], pattern: str) -> None:
    engine.compile(pattern)
    compare(engine, peer(pattern), pattern, 12)
