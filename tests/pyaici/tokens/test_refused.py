"""Files that are refused: unknown components, contradictions, broken content."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aicirt.contract.errors import VocabularyError
from pyaici.tokens import Vocabulary, load_vocabulary
from tests.pyaici.tokens.test_components import byte_level


def load(tmp_path: Path, spec: dict[str, Any]) -> Vocabulary:
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(spec))
    return load_vocabulary(path)


def spec_of(**parts: Any) -> dict[str, Any]:
    """Returns a tokenizer.json with four tokens; `parts` override the defaults."""
    model = {
        "type": "BPE",
        "vocab": {"a": 0, "b": 1, "\u2581c": 2, "<0x0A>": 3},
        "merges": [],
        **parts.pop("model", {}),
    }
    return {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": None,
        "model": model,
        **parts,
    }


SENTENCEPIECE_DECODERS = [
    {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0},
]


def sequence(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "decoders": list(parts)}


def test_sentencepiece_decoder_is_accepted(tmp_path: Path) -> None:
    known = load(tmp_path, spec_of(decoder=sequence(*SENTENCEPIECE_DECODERS)))
    assert known.tokens == [b"a", b"b", b" c", b"\n"]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"decoder": None}, "no decoder"),
        ({"decoder": {"type": "CTC", "pad_token": "a"}}, "the decoder CTC, which is not supported"),
        ({"decoder": {"type": "Surprise"}}, "the decoder Surprise, which is not supported"),
        ({"decoder": {"type": "ByteLevel"}}, "ByteLevel decoder, but no"),
        ({"decoder": sequence({"type": "ByteLevel"}, {"type": "Metaspace"})}, "ByteLevel with Metaspace"),
        (
            {
                "decoder": {"type": "ByteLevel"},
                "pre_tokenizer": {"type": "ByteLevel"},
                "model": {"end_of_word_suffix": "</w>"},
            },
            "end_of_word_suffix",
        ),
        ({"decoder": {"type": "BPEDecoder", "suffix": "</w>"}}, "removes the suffix"),
        ({"decoder": {"type": "WordPiece", "prefix": ""}}, "no prefix"),
        ({"decoder": sequence(SENTENCEPIECE_DECODERS[3])}, "Strip"),
        (
            {"decoder": sequence({"type": "Replace", "pattern": {"Regex": "a+"}, "content": ""})},
            "only strings",
        ),
        ({"model": {"type": "WordLevel"}, "decoder": {"type": "Fuse"}}, "a model of type WordLevel"),
        ({"model": {"vocab": {}}, "decoder": {"type": "Fuse"}}, "vocabulary is empty"),
    ],
)
def test_unknown_combinations_are_refused(tmp_path: Path, parts: dict[str, Any], message: str) -> None:
    with pytest.raises(VocabularyError, match=message):
        load(tmp_path, spec_of(**parts))


MODEL = '"model": {"type": "BPE", "vocab": %s, "merges": []}, "decoder": {"type": "Fuse"}'


@pytest.mark.parametrize(
    "text",
    [
        '{"model": 5}',
        '{"vocab": {}}',
        "{not json",
        "{}",
        '{"model": {"type": "Unigram", "vocab": [["a"]]}, "decoder": {"type": "Fuse"}}',
        "{%s}" % (MODEL % '{"a": -1}'),
        "{%s}" % (MODEL % '{"a": 4194304}'),
        "{%s}" % (MODEL % '{"a": "x"}'),
        '{"added_tokens": [{"id": 1}], %s}' % (MODEL % '{"a": 0}'),
        '{"added_tokens": [{"id": 8000000, "content": "x", "special": true}], %s}' % (MODEL % '{"a": 0}'),
        '{"pre_tokenizer": {}, "decoder": {"x": 1}, "model": {"type": "BPE", "vocab": {"a": 0}}}',
        '{"model": {"type": "Unigram", "unk_id": 7, "vocab": [["a", 0]]}, "decoder": {"type": "Fuse"}}',
        '{"model": %s' % ("[" * 100_000),
        '{"vocab": [], "config": {"default_vocab_size": 9, "default_num_special_tokens": 1e15}}',
    ],
)
def test_invalid_tokenizer_json_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(text)
    with pytest.raises(VocabularyError):
        load_vocabulary(path)


@pytest.mark.parametrize("file", ["tokenizer_config.json", "generation_config.json", "config.json"])
@pytest.mark.parametrize("text", ["[]", "{", "\xff", "[" * 100_000])
def test_broken_config_files_are_refused(tmp_path: Path, file: str, text: str) -> None:
    byte_level().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / file).write_bytes(text.encode("latin-1"))
    with pytest.raises(VocabularyError, match=file):
        load_vocabulary(tmp_path)


def test_paths_and_objects_without_a_tokenizer_are_refused(tmp_path: Path) -> None:
    with pytest.raises(VocabularyError, match="no file or folder"):
        load_vocabulary(tmp_path / "nothing")
    with pytest.raises(VocabularyError, match="Transformers can load"):
        load_vocabulary(tmp_path)
    with pytest.raises(VocabularyError, match="dict is not a tokenizer"):
        load_vocabulary({})
