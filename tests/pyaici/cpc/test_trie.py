"""Compares the trie's queries with a scan of all tokens."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pyaici.cpc import TokenTrie
from pyaici.models import default_model_path
from pyaici.tokens import Vocabulary, load_vocabulary
from tests.pyaici.cpc.tiny import vocabulary

pieces = st.lists(st.sampled_from([b"\x00", b"a", b"b", b"\xfe", b"\xff", b"\xc3"]), max_size=4).map(b"".join)


@given(st.lists(pieces, min_size=1, max_size=30), pieces)
def test_queries_equal_a_scan_of_all_tokens(tokens: list[bytes], text: bytes) -> None:
    """Covers bytes that are not text, equal tokens, and tokens without bytes."""
    trie = TokenTrie(Vocabulary(tokens))
    starting = {i for i, token in enumerate(tokens) if token and token.startswith(text)}
    along = {i for i, token in enumerate(tokens) if token and text.startswith(token)}
    assert set(trie.tokens_that_start_with(text).tolist()) == starting
    found = trie.tokens_that_are_prefix_of(text).tolist()
    assert set(found) == along and [len(tokens[i]) for i in found] == sorted(len(tokens[i]) for i in found)
    compatible = trie.compatible(text)
    assert set(trie.order[compatible.covering].tolist()) == starting
    assert set(trie.order[compatible.partial].tolist()) == {i for i in along if tokens[i] != text}
    assert compatible.count == len(starting | along)
    assert sorted(trie.order.tolist()) == list(range(len(tokens)))


def test_queries_for_a_prefix_of_code() -> None:
    tokens = [b"print", b"private", b"class", b"p", b"pri", b"(", "é".encode(), b"\xc3"]
    trie = TokenTrie(Vocabulary(tokens))
    assert trie.tokens_that_start_with("pri").tolist() == [4, 0, 1]
    assert trie.tokens_that_are_prefix_of("pri").tolist() == [3, 4]
    assert trie.tokens_that_are_prefix_of("é").tolist() == [7, 6]
    assert trie.tokens_that_start_with(b"\xc3").tolist() == [7, 6]
    assert trie.tokens_that_start_with("x").tolist() == []


def test_special_tokens_are_compatible_with_no_text() -> None:
    vocab = vocabulary()
    trie = TokenTrie(vocab)
    assert len(trie.tokens_that_start_with("")) == len(vocab.tokens) - 3
    assert trie.compatible(b"</s>").count == 0
    starting = trie.tokens_that_start_with("pri").tolist()
    assert sorted(vocab.tokens[token] for token in starting) == [b"pri", b"prin", b"print", b"private"]


def test_queries_on_a_real_vocabulary() -> None:
    vocab = load_vocabulary(default_model_path())
    trie = TokenTrie(vocab)
    for text in (b"pri", b" self.me", "né".encode(), b"\xf0\x9f"):
        want = [i for i, t in enumerate(vocab.tokens) if t.startswith(text)]
        assert sorted(trie.tokens_that_start_with(text).tolist()) == want
        along = [i for i, t in enumerate(vocab.tokens) if t and text.startswith(t)]
        assert sorted(trie.tokens_that_are_prefix_of(text).tolist()) == along
    assert trie.order.dtype == np.int64
