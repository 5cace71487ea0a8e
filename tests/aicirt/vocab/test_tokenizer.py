"""The tokenizer in a worker: it turns bytes into tokens with exactly these bytes."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from aicirt.contract.errors import VocabularyError
from aicirt.vocab.tokenizer import BytesTokenizer, RankEncoder, load_tokenizer
from tests.thorough import cases

CORPUS = ["the cat sat on the mat", "the theory of the thing", "naïve café, 漢字 and 👍 again and again"] * 3


@cache
def with_spaces(*, all_bytes: bool) -> tuple[bytes, tuple[bytes, ...]]:
    """A SentencePiece-like tokenizer.json, and its token bytes."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))] if all_bytes else ["<unk>"]
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=pieces, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    spec = json.loads(tokenizer.to_str())
    spec["added_tokens"] = [token for token in spec["added_tokens"] if token["content"] == "<unk>"]
    tokens = [b""] * len(spec["model"]["vocab"])
    for piece, token in spec["model"]["vocab"].items():
        if piece.startswith("<0x"):
            tokens[token] = bytes([int(piece[3:5], 16)])
        elif piece != "<unk>":
            tokens[token] = piece.replace("\u2581", " ").encode()
    return json.dumps(spec).encode(), tuple(tokens)


@cache
def worker(*, all_bytes: bool) -> tuple[BytesTokenizer, tuple[bytes, ...]]:
    data, tokens = with_spaces(all_bytes=all_bytes)
    return load_tokenizer("tokenizers", data, tokens), tokens


def test_a_tokenizer_that_fails_ends_no_worker() -> None:
    """A model comes with the file of its tokenizer, and panics of the package are no `Exception`."""
    data, tokens = with_spaces(all_bytes=True)
    spec = json.loads(data)
    spec["pre_tokenizer"] = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated"}
    spec["pre_tokenizer"]["invert"] = False
    tokenizer = load_tokenizer("tokenizers", json.dumps(spec).encode(), tokens)
    text = b"a" * 60 + b"!"
    assert spelled(tokens, tokenizer(text)) == text
    spec["model"]["merges"] = [["no", "such"]]
    with pytest.raises(VocabularyError):
        load_tokenizer("tokenizers", json.dumps(spec).encode(), tokens)


def spelled(tokens: tuple[bytes, ...], ids: list[int]) -> bytes:
    return b"".join(tokens[token] for token in ids)


def test_text_is_tokenized_by_the_models_tokenizer() -> None:
    tokenizer, _ = worker(all_bytes=True)
    data, _ = with_spaces(all_bytes=True)
    reference = Tokenizer.from_buffer(data)
    assert tokenizer.exact
    for text in [*CORPUS, " the theory", "zebra", "é"]:
        assert tokenizer(text.encode()) == reference.encode(text, add_special_tokens=False).ids


@given(st.binary(max_size=60) | st.text(max_size=40).map(str.encode))
@settings(max_examples=cases(100, 400), deadline=None)
def test_any_bytes_can_be_tokenized(data: bytes) -> None:
    tokenizer, tokens = worker(all_bytes=True)
    assert spelled(tokens, tokenizer(data)) == data


@given(st.text(alphabet="the catson\u2581é<unk>漢\0", max_size=30) | st.binary(max_size=10).map(bytes))
@settings(max_examples=cases(100, 400), deadline=None)
def test_incomplete_vocabulary_spells_exactly_what_its_tokens_cover(text: str | bytes) -> None:
    """Texts made of the bytes of tokens can be spelled; other texts are a VocabularyError."""
    data = text.encode() if isinstance(text, str) else text
    tokenizer, tokens = worker(all_bytes=False)
    known = {token for token in tokens if token}
    reachable = {0}
    for at in range(len(data)):
        if at in reachable:
            reachable |= {at + len(token) for token in known if data.startswith(token, at)}
    if len(data) in reachable:
        assert spelled(tokens, tokenizer(data)) == data
    else:
        with pytest.raises(VocabularyError, match="cannot spell byte"):
            tokenizer(data)


def test_token_that_reaches_from_valid_text_into_invalid_bytes() -> None:
    """Uses a byte that has no token alone, but has one together with the letter before it."""
    tokens = [b"a", b"b", b"b\xff", b""]
    spec = {"pattern": r"\S+|\s+", "first": 0, "end": 2}
    tokenizer = load_tokenizer("ranks", json.dumps(spec).encode(), tokens)
    assert tokenizer(b"ab\xff") == [0, 2]


def test_names_of_special_tokens_are_tokenized_as_text() -> None:
    tokenizer, tokens = worker(all_bytes=True)
    ids = tokenizer(b"a<unk>b")
    assert spelled(tokens, ids) == b"a<unk>b"
    assert tokens.index(b"") not in ids


def test_tokenizer_that_changes_text_still_yields_the_given_bytes() -> None:
    """Uses a tokenizer that changes letters to lower case."""
    data, tokens = with_spaces(all_bytes=True)
    spec = json.loads(data)
    spec["normalizer"] = {"type": "Sequence", "normalizers": [spec["normalizer"], {"type": "Lowercase"}]}
    spec["pre_tokenizer"] = {"type": "Digits", "individual_digits": True}
    tokenizer = load_tokenizer("tokenizers", json.dumps(spec).encode(), tokens)
    assert spelled(tokens, tokenizer(b"The CAT sat")) == b"The CAT sat"


def test_placeholder_for_space_in_the_text_is_spelled_by_bytes() -> None:
    """Only U+2581 itself is spelled byte by byte; the text around it is tokenized as usual."""
    tokenizer, tokens = worker(all_bytes=True)
    ids = tokenizer("the\u2581the".encode())
    the = tokenizer(b"the")
    assert ids == the + tokenizer("\u2581".encode()) + the
    assert spelled(tokens, ids) == "the\u2581the".encode()


def test_ids_beyond_the_models_tokens_are_not_returned() -> None:
    """A model may have fewer tokens than its tokenizer."""
    data, tokens = with_spaces(all_bytes=True)
    narrow = tokens[:300]
    tokenizer = load_tokenizer("tokenizers", data, narrow)
    for text in CORPUS:
        assert spelled(narrow, tokenizer(text.encode())) == text.encode()


def test_longest_match_tokenizers() -> None:
    tokens = [b"a", b"ab", b"c"]
    for kind, exact in (("longest", True), ("greedy", False)):
        tokenizer = load_tokenizer(kind, b"", tokens)
        assert (tokenizer(b"abca"), tokenizer.exact) == ([1, 2, 0], exact)
        assert tokenizer(b"") == []


def test_ranks_differ_from_longest_match() -> None:
    tokens = [b"a", b"b", b"c", b"bc", b"ab"]
    blob = json.dumps({"pattern": r"\S+", "first": 0, "end": 5}).encode()
    assert load_tokenizer("ranks", blob, tokens)(b"abc") == [0, 3]
    assert load_tokenizer("greedy", b"", tokens)(b"abc") == [4, 2]


def test_ranks_merge_the_leftmost_lowest_pair() -> None:
    tokens = [b"a", b"b", b"ab", b"ba", b"aa", b"aab", b"abab"]
    encode = RankEncoder(tokens, range(len(tokens)), lambda text: text.split("|"))
    assert encode("aba") == [2, 0]  # ab, the lower rank
    assert encode("aaa") == [4, 0]  # the left of two equal pairs
    assert encode("aabab") == [5, 2]  # aab before abab
    assert encode("baab|ab") == [3, 2, 2]
    with pytest.raises(VocabularyError, match="byte 0x63"):
        encode("ac")


@pytest.mark.parametrize(
    ("kind", "data", "message"),
    [
        ("magic", b"", "unknown kind"),
        ("tokenizers", b"{}", "cannot read the tokenizer"),
        ("tokenizers", b"\xff", "cannot read the tokenizer"),
        ("ranks", b"{}", "cannot read the tokenizer"),
        ("ranks", json.dumps({"pattern": "(", "first": 0, "end": 1}).encode(), "cannot read the tokenizer"),
        ("ranks", json.dumps({"pattern": ".", "first": 0, "end": 9}).encode(), "cannot read the tokenizer"),
    ],
)
def test_invalid_tokenizer_descriptions_are_refused(kind: str, data: bytes, message: str) -> None:
    with pytest.raises(VocabularyError, match=message):
        load_tokenizer(kind, data, [b"a"])


def test_longest_match_is_used_without_the_tokenizers_package(monkeypatch: pytest.MonkeyPatch) -> None:
    data, tokens = with_spaces(all_bytes=True)
    monkeypatch.setitem(sys.modules, "tokenizers", None)  # importing it fails
    for kind, blob in (("tokenizers", data), ("ranks", b'{"pattern": ".", "first": 0, "end": 9}')):
        tokenizer = load_tokenizer(kind, blob, tokens)
        assert not tokenizer.exact
        assert spelled(tokens, tokenizer(b"the cat\xff")) == b"the cat\xff"


def test_import_loads_no_large_packages() -> None:
    """Workers must start in milliseconds: the package is imported with the first tokenizer."""
    program = (
        "import sys, aicirt.vocab.tokenizer\n"
        "heavy = {'tokenizers', 'torch', 'transformers', 'pyaici'} & set(sys.modules)\n"
        "sys.exit(repr(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_pre_tokenizer_with_a_placeholder_for_space() -> None:
    """Metaspace replaces spaces by U+2581, too."""
    tokenizer: Any = Tokenizer(models.Unigram([("<unk>", 0.0), ("\u2581", -1.0), ("a", -1.0)], unk_id=0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    tokens = [b"", b" ", b"a", *(bytes([byte]) for byte in "\u2581".encode())]
    known = load_tokenizer("tokenizers", tokenizer.to_str().encode(), tokens)
    assert known(" a\u2581a".encode()) == [1, 2, 3, 4, 5, 2]
