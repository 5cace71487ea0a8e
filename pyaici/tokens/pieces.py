"""Derives the rule for the bytes of a single piece from the decoder of a tokenizer.json."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from aicirt.contract.errors import VocabularyError
from pyaici.tokens.alphabet import byte_level_bytes

PieceRule = Callable[[str], bytes]

_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def components(part: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Returns the members of a normalizer, pre-tokenizer or decoder, with sequences flattened."""
    if not part:
        return []
    members = part.get("normalizers") or part.get("pretokenizers") or part.get("decoders")
    if part["type"] == "Sequence":
        return [leaf for member in members or [] for leaf in components(member)]
    return [part]


def piece_rule(spec: dict[str, Any]) -> PieceRule:
    """Returns the rule for the pieces of a parsed tokenizer.json.

    - ByteLevel: the byte alphabet of GPT-2.
    - Metaspace, Replace, ByteFallback (SentencePiece): `▁` is a space, `<0xNN>` one byte. Settings
      that remove the first space of a whole text (Fuse then Strip, prepend_scheme) are ignored.
    - WordPiece: `##ing` continues a word, anything else begins one after a space: b" the".
      The decoder's cleanup of spaces around punctuation is ignored.
    - BPEDecoder: the suffix `</w>` ends a word: b"the ".

    Raises VocabularyError, naming the component, for any other combination.
    """
    decoder = components(spec.get("decoder"))
    kinds = {part["type"] for part in decoder}
    encoders = {part["type"] for part in components(spec.get("normalizer"))}
    encoders |= {part["type"] for part in components(spec.get("pre_tokenizer"))}
    model = spec["model"]
    if not decoder:
        return _rule_of_encoder(spec, encoders)
    if "ByteLevel" in kinds:
        _require_only(kinds, {"ByteLevel", "Fuse"}, "ByteLevel")
        if "ByteLevel" not in encoders:
            raise VocabularyError(
                "tokenizer.json has a ByteLevel decoder, but no ByteLevel normalizer or pre-tokenizer"
            )
        _forbid_affixes(model, "ByteLevel")
        return byte_level_bytes
    if "WordPiece" in kinds:
        _require_only(kinds, {"WordPiece"}, "WordPiece")
        return _word_pieces(decoder[0]["prefix"])
    if "BPEDecoder" in kinds:
        _require_only(kinds, {"BPEDecoder"}, "BPEDecoder")
        if (model.get("end_of_word_suffix") or "") != decoder[0]["suffix"]:
            raise VocabularyError(
                f"the BPEDecoder removes the suffix {decoder[0]['suffix']!r}, "
                f"but the model appends {model.get('end_of_word_suffix')!r}"
            )
        return _suffixed_pieces(decoder[0]["suffix"])
    _forbid_affixes(model, "/".join(sorted(kinds)))
    return _text_rule(decoder, bool(model.get("byte_fallback")))


def _rule_of_encoder(spec: dict[str, Any], encoders: set[str]) -> PieceRule:
    """Returns the rule for a tokenizer without a decoder, derived from its normalizer and pre-tokenizer."""
    if "ByteLevel" in encoders:
        _forbid_affixes(spec["model"], "ByteLevel")
        return byte_level_bytes
    if "Metaspace" in encoders:
        parts = [part for part in components(spec.get("pre_tokenizer")) if part["type"] == "Metaspace"]
        return _text_rule(parts, bool(spec["model"].get("byte_fallback")))
    raise VocabularyError(
        f"tokenizer.json has no decoder (model {spec['model'].get('type')}): "
        "the bytes of its pieces are unknown"
    )


def _text_rule(parts: list[dict[str, Any]], byte_fallback: bool) -> PieceRule:
    """Returns the rule for pieces that are text in which some strings stand for others."""
    replacements: list[tuple[str, str]] = []
    fused = False
    for part in parts:
        kind = part["type"]
        if kind == "Metaspace":
            replacements.append((part["replacement"], " "))
        elif kind == "Replace":
            if "String" not in part["pattern"]:
                raise VocabularyError(
                    f"the Replace decoder has {part['pattern']}: only strings are supported"
                )
            replacements.append((part["pattern"]["String"], part["content"]))
        elif kind == "ByteFallback":
            byte_fallback = True
        elif kind == "Fuse":
            fused = True
        elif kind == "Strip":
            if not fused or part["stop"]:
                raise VocabularyError(
                    "the Strip decoder strips single pieces or the end of the text, which is not supported"
                )
        else:
            raise VocabularyError(f"tokenizer.json has the decoder {kind}, which is not supported")

    def rule(piece: str) -> bytes:
        if byte_fallback and (match := _BYTE_PIECE.fullmatch(piece)):
            return bytes([int(match[1], 16)])
        for old, new in replacements:
            piece = piece.replace(old, new)
        return piece.encode()

    return rule


def _word_pieces(prefix: str) -> PieceRule:
    if not prefix:
        raise VocabularyError("the WordPiece decoder has no prefix for continued words")

    def rule(piece: str) -> bytes:
        return (piece[len(prefix) :] if piece.startswith(prefix) else " " + piece).encode()

    return rule


def _suffixed_pieces(suffix: str) -> PieceRule:
    if not suffix:
        raise VocabularyError("the BPEDecoder has no suffix for the end of a word")
    return lambda piece: piece.replace(suffix, " ").encode()


def _require_only(kinds: set[str], known: set[str], main: str) -> None:
    if extra := kinds - known:
        raise VocabularyError(
            f"this combination of decoders is not supported: {main} with {', '.join(sorted(extra))}"
        )


def _forbid_affixes(model: dict[str, Any], decoder: str) -> None:
    for name in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get("type") == "BPE" and model.get(name):
            raise VocabularyError(
                f"the BPE model has {name} {model[name]!r}, which the {decoder} decoder does not remove"
            )
