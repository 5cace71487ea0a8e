"""SentencePiece models, compared with the sentencepiece package."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import sentencepiece

from aicirt.contract.errors import VocabularyError
from aicirt.vocab.tokenizer import load_tokenizer
from lab.system.fetch import pypi_file
from pyaici.tokens import Vocabulary, load_vocabulary
from pyaici.tokens.tokenizer_json import markup
from tests.pyaici.tokens.texts import LOOKALIKES, PLAIN, RAW

#: Mistral's models: byte pair encoding with byte fallback; the later ones have hundreds of control tokens
MISTRAL = ["tokenizer.model.v1", "mistral_instruct_tokenizer_240323.model.v3"]

CORPUS = [
    "The quick brown fox jumps over the lazy dog, again and again and again.",
    "Pack my box with five dozen liquor jugs; how vexingly quick daft zebras jump!",
    "Übermäßig schöne Grüße aus München, zwölf Boxkämpfer jagen Viktor.",
    "def main(args): return [int(x) for x in args if x.isdigit()]",
    "0 1 2 3 4 5 6 7 8 9 10 20 30 40 50 60 70 80 90 100 1000",
] * 4


def mistral(file: str) -> Path:
    return pypi_file("mistral-common", f"mistral_common/data/{file}")


def trained(folder: Path, kind: str, *, byte_fallback: bool) -> Path:
    """Trains a small model on CORPUS."""
    prefix = folder / f"{kind}-{byte_fallback}"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS),
        model_prefix=str(prefix),
        model_type=kind,
        vocab_size=480 if byte_fallback else 220,
        byte_fallback=byte_fallback,
        hard_vocab_limit=False,
        user_defined_symbols=["<tool>", "\u2581\u2581"],
        control_symbols=["<ctl>"],
        remove_extra_whitespaces=False,
        normalization_rule_name="identity",
        minloglevel=2,
    )
    return prefix.with_suffix(".model")


@pytest.fixture(scope="module", params=[*MISTRAL, "bpe", "bpe+bytes", "unigram", "unigram+bytes"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if request.param in MISTRAL:
        yield mistral(request.param)
    else:
        kind, _, fallback = request.param.partition("+")
        yield trained(tmp_path_factory.mktemp("spm"), kind, byte_fallback=bool(fallback))


def is_special(processor: sentencepiece.SentencePieceProcessor, token: int) -> bool:
    """Marks of tool calls are text here."""
    control = processor.IsControl(token) or processor.IsUnknown(token)
    return control and not markup([processor.IdToPiece(token)])


def expected_bytes(processor: sentencepiece.SentencePieceProcessor, token: int) -> bytes:
    if is_special(processor, token):
        return b""
    piece: str = processor.IdToPiece(token)
    return bytes([int(piece[3:5], 16)]) if processor.IsByte(token) else piece.replace("\u2581", " ").encode()


def test_tokens_match_the_pieces_of_the_package(model: Path) -> None:
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    known = load_vocabulary(model)
    size = processor.GetPieceSize()
    assert known.tokens == [expected_bytes(processor, token) for token in range(size)]
    assert known.special_names == {
        token: processor.IdToPiece(token) for token in range(size) if is_special(processor, token)
    }
    assert (known.bos, known.eos, known.unk) == (
        processor.bos_id(),
        (processor.eos_id(),),
        processor.unk_id(),
    )


def test_worker_encodes_like_the_package(model: Path) -> None:
    """The package adds a space before the text; the worker does not."""
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    known = load_vocabulary(model)
    worker = load_tokenizer(known.tokenizer.kind, known.tokenizer.data, known.tokens)
    compared = 0
    for text in PLAIN + CORPUS[:5]:
        expected = processor.EncodeAsIds(text)
        if processor.unk_id() in expected:
            continue
        assert known.decode(expected) == (" " + text).encode()
        assert worker((" " + text).encode()) == expected, text
        compared += 1
    assert compared >= 5


def test_worker_returns_exactly_the_bytes(model: Path) -> None:
    known = load_vocabulary(model)
    worker = load_tokenizer(known.tokenizer.kind, known.tokenizer.data, known.tokens)
    all_bytes = {bytes([byte]) for byte in range(256)} <= set(known.tokens)
    spelled = 0
    for data in [text.encode() for text in PLAIN + LOOKALIKES + CORPUS[:5]] + RAW:
        try:
            tokens = worker(data)
        except VocabularyError:
            assert not all_bytes
        else:
            assert known.decode(tokens) == data
            assert known.special.isdisjoint(tokens)
            spelled += 1
    assert spelled >= 5


def test_user_defined_symbols_are_text(tmp_path: Path) -> None:
    known = load_vocabulary(trained(tmp_path, "bpe", byte_fallback=True))
    worker = load_tokenizer(known.tokenizer.kind, known.tokenizer.data, known.tokens)
    assert known.tokens.index(b"<tool>") in worker(b"a<tool>b")
    assert b"<ctl>" not in known.tokens
    assert known.decode(worker(b"<ctl>  <s>")) == b"<ctl>  <s>"


def test_folder_with_only_a_sentencepiece_model(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").symlink_to(mistral(MISTRAL[0]))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 13]}))
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 32064}))
    known = load_vocabulary(tmp_path)
    assert isinstance(known, Vocabulary)
    assert (known.eos, known.vocab_size, known.name) == ((2, 13), 32064, tmp_path.name)


@pytest.mark.parametrize("data", [b"", b"\x0a", b"\x0a\xff\xff\xff\xff\x0f", b"\x0b\x00", b"PK\x03\x04" * 9])
def test_files_that_are_not_models_are_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(data)
    with pytest.raises(VocabularyError, match="not a SentencePiece model"):
        load_vocabulary(path)


def test_truncated_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(mistral(MISTRAL[0]).read_bytes()[:100_001])
    with pytest.raises(VocabularyError, match=r"cut off|not a SentencePiece model"):
        load_vocabulary(path)


def test_word_models_are_refused(tmp_path: Path) -> None:
    with pytest.raises(VocabularyError, match="model type 3"):
        load_vocabulary(trained(tmp_path, "word", byte_fallback=False))
