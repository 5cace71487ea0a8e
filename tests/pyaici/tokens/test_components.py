"""tokenizer.json files of every algorithm, trained by the tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from aicirt.contract.errors import VocabularyError
from aicirt.vocab.tokenizer import BytesTokenizer, load_tokenizer
from pyaici.tokens import Vocabulary, load_vocabulary
from tests.pyaici.tokens.published import bert
from tests.pyaici.tokens.test_sentencepiece import CORPUS
from tests.pyaici.tokens.texts import LOOKALIKES, PLAIN


def in_worker(known: Vocabulary) -> BytesTokenizer:
    return load_tokenizer(known.tokenizer.kind, known.tokenizer.data, known.tokens)


# -- WordPiece: a piece that begins a word has a space before it ------------------------------


def test_word_piece_bytes_equal_the_decoded_text() -> None:
    known, tokenizer = load_vocabulary(bert()), bert()
    assert len(known.tokens) == 30522
    assert known.tokens[7592] == b" hello"
    assert known.special_names[100] == "[UNK]"
    assert known.unk == 100
    anchor = tokenizer.token_to_id("hello")
    ids = [token for token, piece in enumerate(known.tokens) if piece]
    decoded = tokenizer.decode_batch([[anchor, token] for token in ids], skip_special_tokens=False)
    wrong = [
        (token, text)
        for token, text in zip(ids, decoded, strict=True)
        if "hello" + known.tokens[token].decode() != text
    ]
    assert wrong[:10] == []


def test_word_piece_encodes_words_like_the_model() -> None:
    known, tokenizer = load_vocabulary(bert()), bert()
    worker = in_worker(known)
    text = " tokenizers are unbelievably inconsistent"
    expected = tokenizer.encode(text, add_special_tokens=False).ids
    assert worker(text.encode()) == expected
    assert known.decode(expected) == text.encode()
    # without the space, the text continues a word
    assert known.decode(worker(b"izers are")) == b"izers are"


def test_word_piece_refuses_bytes_without_a_token() -> None:
    worker = in_worker(load_vocabulary(bert()))
    with pytest.raises(VocabularyError, match="byte 0x0a at offset 6"):
        worker(b" hello\n")
    with pytest.raises(VocabularyError, match="byte 0x20 at offset 0"):
        worker(b" Hello")


# -- Unigram and BPE with a suffix ---------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["always", "first", "never"])
def test_unigram_encodes_text_like_the_model(scheme: str) -> None:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()])
    # T5 splits words at spaces and then prefixes each with one; only "always" restores the spaces.
    splitter = [pre_tokenizers.WhitespaceSplit()] if scheme == "always" else []
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [*splitter, pre_tokenizers.Metaspace(prepend_scheme=scheme)]
    )
    tokenizer.decoder = decoders.Metaspace(prepend_scheme=scheme)
    special = ["<unk>", "<s>", "</s>"]
    trainer = trainers.UnigramTrainer(
        vocab_size=200, special_tokens=special, unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator([" " + line for line in CORPUS], trainer)
    tokenizer.add_tokens(["<tool>"])
    known = load_vocabulary(tokenizer)
    assert set(known.special_names.values()) == set(special)
    worker = in_worker(known)
    for line in CORPUS[:5]:
        text = " " + line
        assert known.decode(worker(text.encode())) == text.encode()
        expected = tokenizer.encode(text, add_special_tokens=False).ids
        assert worker(text.encode()) == expected
        assert known.decode(expected) == text.encode()
    # the worker also keeps what the tokenizer loses: runs of spaces, and names of special tokens
    assert known.decode(worker(b"  two  too ")) == b"  two  too "
    assert known.tokens.index(b"<tool>") in worker(b"a<tool>b")
    with pytest.raises(VocabularyError):
        worker(b"</s>\0")


def test_unigram_does_not_find_special_pieces_in_text() -> None:
    vocab = [("<unk>", 0.0), ("</s>", 0.0), *((letter, -5.0) for letter in "</s>\u2581ab")]
    tokenizer = Tokenizer(models.Unigram(vocab, unk_id=0, byte_fallback=False))
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.add_special_tokens(["</s>"])
    known = load_vocabulary(tokenizer)
    worker = in_worker(known)
    assert worker(b"a</s>b") == [7, 2, 3, 4, 5, 8]
    assert worker.exact


def test_pieces_with_an_end_of_word_suffix() -> None:
    """Uses the BPE of the first GPT, in which "</w>" ends a word."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.BPEDecoder(suffix="</w>")
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    known = load_vocabulary(tokenizer)
    text = "the quick brown fox "
    expected = tokenizer.encode(text).ids
    assert known.decode(expected) == text.encode()
    assert in_worker(known)(text.encode()) == expected
    assert tokenizer.decode(expected) == text.rstrip()


def test_byte_level_normalizer_is_supported() -> None:
    """A normalizer, instead of a pre-tokenizer, maps bytes to the byte alphabet."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.ByteLevel()
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    known = load_vocabulary(tokenizer)
    worker = in_worker(known)
    for text in PLAIN + LOOKALIKES:
        assert known.decode(tokenizer.encode(text).ids) == text.encode()
        assert known.decode(worker(text.encode())) == text.encode()
    assert worker(b"fox") == tokenizer.encode("fox").ids


# -- added tokens -----------------------------------------------------------------------------------


def byte_level(*added: AddedToken | str) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    for token in added:
        tokenizer.add_tokens([token])
    return tokenizer


def test_added_tokens_are_text_unless_special() -> None:
    tokenizer = byte_level(
        "<tool>", AddedToken("<end>", special=True), "é\u2581 x", AddedToken("<m>", rstrip=True)
    )
    known = load_vocabulary(tokenizer)
    ids = {label: tokenizer.token_to_id(label) for label in ("<tool>", "<end>", "é\u2581 x", "<m>")}
    assert known.tokens[ids["<tool>"]] == b"<tool>"
    assert known.tokens[ids["é\u2581 x"]] == "é\u2581 x".encode()
    assert known.special_names == {ids["<end>"]: "<end>"}
    worker = in_worker(known)
    assert worker(b"<tool>")[0] == ids["<tool>"]
    # The model's tokenizer would drop the spaces after the token, and add one before the text.
    tokens = worker(b"<m>  a<end>")
    assert tokens[0] == ids["<m>"]
    assert known.decode(tokens) == b"<m>  a<end>"


def test_config_files_name_more_special_tokens(tmp_path: Path) -> None:
    byte_level("<one>", "<two>").save(str(tmp_path / "tokenizer.json"))
    size = byte_level("<one>", "<two>").get_vocab_size()
    settings = {
        "bos_token": {"content": "<one>", "__type": "AddedToken"},
        "eos_token": "<three>",
        "additional_special_tokens": [{"content": "<four>"}],
        "added_tokens_decoder": {
            str(size): {"content": "<three>", "special": True},
            str(size + 1): {"content": "<four>", "special": False},
            str(size + 3): {"content": "plain", "special": False},
        },
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    (tmp_path / "config.json").write_text(json.dumps({"text_config": {"vocab_size": size + 10}}))
    known = load_vocabulary(tmp_path / "tokenizer.json")
    assert known.special_names == {size - 2: "<one>", size: "<three>", size + 1: "<four>"}
    assert (known.bos, known.eos, known.vocab_size) == (size - 2, (size,), size + 10)
    assert known.tokens[size - 1] == b"<two>"
    assert known.tokens[size + 2 :] == [b"", b"plain"]


def test_model_narrower_than_its_tokenizer(tmp_path: Path) -> None:
    """Tokens beyond the logits can never be sampled and are omitted."""
    byte_level("<one>", "<two>").save(str(tmp_path / "tokenizer.json"))
    size = byte_level("<one>", "<two>").get_vocab_size()
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": size - 1, "eos_token_id": size - 1}))
    known = load_vocabulary(tmp_path)
    assert (known.vocab_size, len(known.tokens), known.eos) == (size - 1, size - 1, ())
    assert known.decode(in_worker(known)(b"<one><two>")) == b"<one><two>"
