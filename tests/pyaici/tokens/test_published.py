"""Real tokenizers: the derived bytes of tokens, compared with what the tokenizers encode and decode."""

from __future__ import annotations

import random

import pytest
from tokenizers import Tokenizer

from aicirt.contract.errors import VocabularyError
from pyaici.tokens import Vocabulary
from tests.pyaici.tokens.published import TOKENIZER_JSON, in_worker, original, vocabulary
from tests.pyaici.tokens.texts import LOOKALIKES, PLAIN, RAW
from tests.thorough import thorough

#: tokenizers that put a space before every text
PREFIXED = {"llama2"}
#: tokenizers in which "\u2581" is a space
SENTENCEPIECE = {"llama2", "gemma3"}
#: tokenizers without a token for some bytes that are rare in text
INCOMPLETE = {"smollm2"}

#: the others have the same kinds of rules as these, and more tokens
_SHORT = ("llama2", "llama3", "smollm2")
every = pytest.mark.parametrize("name", TOKENIZER_JSON if thorough() else _SHORT)


def encoded(tokenizer: Tokenizer, text: str) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids


def normal(name: str, text: str) -> str:
    """Returns the text that a tokenizer encodes: in its Unicode normal form, if it has one."""
    normalizer = original(name).normalizer
    return text if normalizer is None or name in SENTENCEPIECE else str(normalizer.normalize_str(text))


def spellable(name: str, data: bytes) -> bool:
    """Returns whether the vocabulary has a token for every byte of the data."""
    return name not in INCOMPLETE or {bytes([byte]) for byte in data} <= set(vocabulary(name).tokens)


@every
def test_number_of_tokens_matches_the_tokenizer(name: str) -> None:
    known = vocabulary(name)
    tokenizer = original(name)
    assert known.vocab_size == len(known.tokens) == TOKENIZER_JSON[name]
    assert len(known.eos) == 1
    unused = {token for token, piece in enumerate(known.tokens) if not piece} - known.special
    assert unused == {token for token in range(known.vocab_size) if tokenizer.id_to_token(token) is None}


@every
def test_decoding_an_encoded_text_gives_the_text(name: str) -> None:
    compared = 0
    for text in PLAIN:
        if not spellable(name, text.encode()):
            continue
        compared += 1
        expected = (" " if name in PREFIXED else "") + normal(name, text)
        assert vocabulary(name).decode(encoded(original(name), text)) == expected.encode(), text
    assert compared >= 10


@every
def test_bytes_equal_what_the_tokenizer_decodes(name: str) -> None:
    """Decodes each token after another one, since the first token of a text may lose its space."""
    tokenizer, known = original(name), vocabulary(name)
    anchor = max(token for token, piece in enumerate(known.tokens) if piece == b"x")
    ids = [token for token in range(len(known.tokens)) if known.tokens[token]]
    decoded = tokenizer.decode_batch([[anchor, token] for token in ids], skip_special_tokens=False)
    wrong = [
        (token, known.tokens[token], text)
        for token, text in zip(ids, decoded, strict=True)
        if "x" + known.tokens[token].decode("utf-8", "replace") != text
    ]
    assert wrong[:10] == []


@every
def test_special_tokens_are_never_text(name: str) -> None:
    known, tokenizer = vocabulary(name), original(name)
    for token, label in known.special_names.items():
        assert known.tokens[token] == b""
        assert tokenizer.token_to_id(label) == token
        assert token not in in_worker(name)(label.encode())
    for token in known.eos:
        assert token in known.special


@every
def test_worker_encodes_normal_text_as_the_model_does(name: str) -> None:
    worker, tokenizer = in_worker(name), original(name)
    assert worker.exact
    compared = 0
    for text in PLAIN:
        if normal(name, text) != text or not spellable(name, text.encode()):
            continue
        # A tokenizer with a prefix encodes text after a space as the worker does.
        expected = encoded(tokenizer, text)
        given = " " + text if name in PREFIXED else text
        assert worker(given.encode()) == expected, text
        compared += 1
    assert compared >= 10


@every
def test_worker_returns_exactly_the_bytes(name: str) -> None:
    worker, known = in_worker(name), vocabulary(name)
    for data in [text.encode() for text in PLAIN + LOOKALIKES] + RAW:
        if spellable(name, data):
            tokens = worker(data)
            assert known.decode(tokens) == data
            assert known.special.isdisjoint(tokens)
        else:
            with pytest.raises(VocabularyError, match="cannot spell byte"):
                worker(data)


@every
def test_worker_tokenizes_parts_that_are_cut_anywhere(name: str) -> None:
    """Cuts texts at random bytes, also inside characters."""
    worker, known = in_worker(name), vocabulary(name)
    shuffled = random.Random(7)
    compared = 0
    for text in PLAIN[:12]:
        data = text.encode()
        if not spellable(name, data):
            continue
        compared += 1
        cuts = sorted(shuffled.sample(range(len(data) + 1), k=min(3, len(data))))
        parts = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        assert known.decode([token for part in parts for token in worker(part)]) == data
    assert compared >= 6


def test_vocabulary_can_have_two_eos_tokens(llama3_folder: Vocabulary) -> None:
    assert llama3_folder.eos == (128001, 128009)
    assert llama3_folder.special_names[128009] == "<|eot_id|>"
    assert llama3_folder.vocab_size == 128384
    assert len(llama3_folder.tokens) == 128256
