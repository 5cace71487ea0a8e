"""Vocabularies of GGUF files, compared with llama.cpp's library, its own tests, and published tokenizers."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from aicirt.contract.errors import VocabularyError
from aicirt.vocab.tokenizer import load_tokenizer
from lab.system.fetch import pypi_source
from pyaici import LlamaModel, load_library
from pyaici.tokens import load_vocabulary
from pyaici.tokens.companion import Companion
from pyaici.tokens.gguf import GgufHeader, parse_gguf_header, vocabulary_from_gguf
from tests.pyaici.tokens.published import original, tokenizer_json
from tests.pyaici.tokens.test_published import normal, spellable
from tests.pyaici.tokens.texts import PLAIN
from tests.thorough import thorough

#: vocabularies that llama.cpp tests itself with: name -> number of tokens
NUMBERS = {
    "aquila": 100008,
    "baichuan": 64000,
    "command-r": 256000,
    "deepseek-coder": 32256,
    "deepseek-llm": 102400,
    "falcon": 65024,
    "gemma-4": 262144,
    "gpt-2": 50257,
    "gpt-neox": 50432,
    "llama-bpe": 128256,
    "llama-spm": 32000,
    "mpt": 50432,
    "nomic-bert-moe": 250048,
    "phi-3": 32064,
    "qwen2": 151936,
    "qwen35": 151936,
    "refact": 49216,
    "starcoder": 49152,
}
#: one of each kind with few tokens
_SHORT = ("deepseek-coder", "falcon", "gpt-neox", "llama-bpe", "llama-spm", "phi-3", "refact")
#: those that come without texts
WITHOUT_TEXTS = {"aquila", "baichuan", "gpt-neox", "nomic-bert-moe"}
#: those that put a space before every text
PREFIXED = {"llama-spm", "phi-3"}
#: The library's pieces are not the bytes that these have in a text: it shows words of user-defined tokens
#: that stand for bytes, marks tokens with unusual bytes, or has names for unused ids.
OTHER_PIECES = {"command-r", "deepseek-coder", "deepseek-llm", "nomic-bert-moe"}
#: the name in `tokenizer.ggml.pre` -> a published tokenizer with that rule
PUBLISHED = {
    "command-r": "command_r_plus",
    "deepseek-v3": "deepseek_v3",
    "gpt-4o": "gpt4o",
    "llama-bpe": "llama3",
    "qwen2": "qwen3",
    "tekken": "mistral_nemo",
}


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the vocabularies and their texts."""
    folder = tmp_path_factory.mktemp("vocabularies")
    with tarfile.open(pypi_source("llama-cpp-python")) as archive:
        for member in archive:
            if "/models/ggml-vocab-" in member.name and (source := archive.extractfile(member)) is not None:
                with source, (folder / Path(member.name).name).open("wb") as target:
                    shutil.copyfileobj(source, target)
    return folder


@pytest.mark.parametrize("name", NUMBERS if thorough() else _SHORT)
def test_tokens_and_texts_have_the_bytes_that_the_library_gives_them(name: str, files: Path) -> None:
    path = files / f"ggml-vocab-{name}.gguf"
    known = load_vocabulary(path)
    assert known.vocab_size == len(known.tokens) == NUMBERS[name]
    if name not in OTHER_PIECES:
        wrong = [
            (token, piece, known.tokens[token])
            for token, piece in enumerate(pieces_of_the_library(path))
            if token not in known.special and piece != known.tokens[token]
        ]
        assert not wrong, wrong[:10]
    if name in WITHOUT_TEXTS:
        return
    assert known.tokenizer is not None
    encode = load_tokenizer(known.tokenizer.kind, known.tokenizer.data, known.tokens)
    texts = (files / f"ggml-vocab-{name}.gguf.inp").read_bytes().split(b"\n__ggml_vocab_test__\n")
    lines = (files / f"ggml-vocab-{name}.gguf.out").read_text().splitlines()
    assert len(texts) > 40
    for text, line in zip(texts, lines, strict=False):
        if text:
            assert list(encode((b" " if name in PREFIXED else b"") + text)) == [
                int(n) for n in line.split()
            ], text


def pieces_of_the_library(path: Path) -> list[bytes]:
    """Returns the bytes of all tokens, as llama.cpp's library shows them."""
    library = load_library()
    params = library.model_default_params()
    params.vocab_only = True
    pointer = library.model_load_from_file(os.fsencode(path), params)
    # LlamaModel refuses files without weights
    model = LlamaModel.__new__(LlamaModel)
    model.library, model._vocab = library, library.model_get_vocab(pointer)
    found = [model.piece(token) for token in range(NUMBERS[path.stem.removeprefix("ggml-vocab-")])]
    library.model_free(pointer)
    return found


def test_vocabularies_of_models_that_do_not_generate_are_refused(files: Path) -> None:
    with pytest.raises(VocabularyError, match="a tokenizer of the kind 'bert'"):
        load_vocabulary(files / "ggml-vocab-bert-bge.gguf")


@pytest.mark.parametrize("rule", PUBLISHED if thorough() else ["llama-bpe"])
def test_texts_are_split_as_in_published_tokenizers(rule: str) -> None:
    """A header with the tokens of a published tokenizer and the name of its rule."""
    name = PUBLISHED[rule]
    model = json.loads(tokenizer_json(name).read_text())["model"]
    published: Tokenizer = original(name)
    ids = published.get_vocab()
    tokens = [b""] * (max(ids.values()) + 1)
    for text, token in ids.items():
        tokens[token] = text.encode()
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    metadata: dict[str, Any] = {
        "tokenizer.ggml.model": b"gpt2",
        "tokenizer.ggml.pre": rule.encode(),
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": [merge.encode() for merge in merges],
    }
    companion = Companion()
    companion.eos = (len(tokens) - 1,)  # any; it has no effect on texts
    known = vocabulary_from_gguf(GgufHeader(metadata, 0, []), companion, "made")
    assert known.tokenizer is not None
    encode = load_tokenizer(known.tokenizer.kind, known.tokenizer.data, known.tokens)
    # GGUF files have no Unicode normalization
    texts = [text for text in PLAIN if normal(name, text) == text and spellable(name, text.encode())]
    assert len(texts) > 10
    for text in texts:
        assert list(encode(text.encode())) == published.encode(text, add_special_tokens=False).ids, text


def test_a_text_of_a_header_has_a_limit() -> None:
    head = b"GGUF" + (3).to_bytes(4, "little") + (0).to_bytes(8, "little") + (1).to_bytes(8, "little")
    with pytest.raises(VocabularyError, match="a text has 17000000 bytes"):
        parse_gguf_header(head + (17_000_000).to_bytes(8, "little") + bytes(17_000_000), "large.gguf")


def test_an_array_of_texts_that_ends_too_early_or_has_too_long_a_text_is_an_error() -> None:
    def text(content: bytes) -> bytes:
        return len(content).to_bytes(8, "little") + content

    def number(value: int, nbytes: int = 8) -> bytes:
        return value.to_bytes(nbytes, "little")

    head = (
        b"GGUF"
        + number(3, 4)
        + number(0)
        + number(1)
        + text(b"texts")
        + number(9, 4)
        + number(8, 4)
        + number(3)
    )
    whole = head + text(b"one") + text(b"") + text(b"three")
    assert parse_gguf_header(whole, "small.gguf").metadata == {"texts": [b"one", b"", b"three"]}
    for end in range(len(head), len(whole)):
        with pytest.raises(VocabularyError, match=f"it ends at byte {end}, in the middle of its header"):
            parse_gguf_header(whole[:end], "small.gguf")
    with pytest.raises(VocabularyError, match="a text has 17000000 bytes"):
        parse_gguf_header(head + text(b"one") + number(17_000_000) + bytes(17_000_000), "large.gguf")
