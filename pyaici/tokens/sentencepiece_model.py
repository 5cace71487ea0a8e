"""Reads SentencePiece .model files without the sentencepiece package."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from aicirt.contract.errors import VocabularyError

#: piece types of the format, which GGUF has too
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
#: algorithms
UNIGRAM, BPE = 1, 2
_SPACE = "\u2581"


@dataclass
class Piece:
    """A token of a model."""

    text: str
    score: float = 0.0
    kind: int = NORMAL


@dataclass
class SentencePieceModel:
    """The parts of a model that tokenization needs."""

    pieces: list[Piece]
    algorithm: int = UNIGRAM
    unk: int = 0
    bos: int = 1
    eos: int = 2
    pad: int = -1


def tokenizer_json_from_model(data: bytes) -> tuple[dict[str, Any], dict[str, str]]:
    """Converts a model to a parsed tokenizer.json; also returns the texts of bos, eos, pad and unk by role.

    Raises VocabularyError if the bytes are not a SentencePiece model, or if its algorithm is neither BPE
    nor Unigram.
    """
    try:
        model = _read_model(data)
    except (ValueError, IndexError, struct.error, UnicodeDecodeError) as error:
        raise VocabularyError(f"this is not a SentencePiece model: {error}") from error
    if model.algorithm not in (UNIGRAM, BPE):
        raise VocabularyError(
            f"SentencePiece model type {model.algorithm} is not supported: only Unigram (1) and BPE (2)"
        )
    spec = tokenizer_json_of(model)
    named = {"unk": model.unk, "bos": model.bos, "eos": model.eos, "pad": model.pad}
    size = len(model.pieces)
    roles = {role: model.pieces[token].text for role, token in named.items() if 0 <= token < size}
    return spec, roles


def tokenizer_json_of(model: SentencePieceModel, merges: list[list[str]] | None = None) -> dict[str, Any]:
    """Returns the parsed tokenizer.json of a model. BPE uses `merges` if there are any, else the scores."""
    return {
        "version": "1.0",
        "added_tokens": list(_added_tokens(model)),
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE},
        "pre_tokenizer": None,
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
            ],
        },
        "model": _bpe(model, merges or _merges(model)) if model.algorithm == BPE else _unigram(model),
    }


def _added_tokens(model: SentencePieceModel) -> Iterator[dict[str, Any]]:
    # BPE splits user-defined symbols out of the text first; Unigram prefers them because their score is 0.
    cut_out = (UNKNOWN, CONTROL, USER_DEFINED) if model.algorithm == BPE else (UNKNOWN, CONTROL)
    for token, piece in enumerate(model.pieces):
        if piece.kind in cut_out:
            special = piece.kind != USER_DEFINED
            flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": not special}
            yield {"id": token, "content": piece.text, "special": special, **flags}


def _unigram(model: SentencePieceModel) -> dict[str, Any]:
    return {
        "type": "Unigram",
        "unk_id": model.unk,
        "vocab": [[piece.text, piece.score] for piece in model.pieces],
        "byte_fallback": any(piece.kind == BYTE for piece in model.pieces),
    }


def _merges(model: SentencePieceModel) -> list[list[str]]:
    """Returns the merges of adjacent symbols whose text is a piece, highest score first."""
    scores = {piece.text: piece.score for piece in model.pieces if piece.kind in (NORMAL, USER_DEFINED)}
    merges = []
    for text, score in scores.items():
        for cut in range(1, len(text)):
            left, right = text[:cut], text[cut:]
            if left in scores and right in scores:
                merges.append((-score, -cut, left, right))
    merges.sort()
    return [[left, right] for _, _, left, right in merges]


def _bpe(model: SentencePieceModel, merges: list[list[str]]) -> dict[str, Any]:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": model.pieces[model.unk].text,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": True,
        "byte_fallback": any(piece.kind == BYTE for piece in model.pieces),
        "ignore_merges": False,
        "vocab": {piece.text: token for token, piece in enumerate(model.pieces)},
        "merges": merges,
    }


def _read_model(data: bytes) -> SentencePieceModel:
    """Reads a ModelProto: 1 = pieces, 2 = trainer_spec (3 = model_type, 40-43 = unk, bos, eos, pad)."""
    model = SentencePieceModel([])
    for field, value in _fields(data):
        if field == 1 and isinstance(value, bytes):
            model.pieces.append(_read_piece(value))
        elif field == 2 and isinstance(value, bytes):
            trainer = dict(_fields(value))
            number = {key: _signed(entry) for key, entry in trainer.items() if isinstance(entry, int)}
            model.algorithm = number.get(3, UNIGRAM)
            model.unk, model.bos = number.get(40, 0), number.get(41, 1)
            model.eos, model.pad = number.get(42, 2), number.get(43, -1)
    if not model.pieces or not 0 <= model.unk < len(model.pieces):
        raise ValueError("it has no pieces, or no piece for unknown text")
    return model


def _read_piece(data: bytes) -> Piece:
    """Reads a SentencePiece message: 1 = piece, 2 = score, 3 = type."""
    entry = dict(_fields(data))
    text, score = entry[1], entry.get(2, b"\0\0\0\0")
    if not isinstance(text, bytes) or not isinstance(score, bytes):
        raise ValueError("a piece has no text, or an invalid score")
    return Piece(text.decode(), struct.unpack("<f", score)[0], int(entry.get(3, NORMAL)))


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yields the fields of a protocol buffer as (number, value): an int for varints, else raw bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        field, wire = key >> 3, key & 7
        if wire == 0:
            number, at = _varint(data, at)
            yield field, number
            continue
        if wire == 2:
            size, at = _varint(data, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"unknown wire type {wire} at byte {at}")
        if at + size > len(data):
            raise ValueError(f"field {field} at byte {at} is cut off")
        yield field, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
