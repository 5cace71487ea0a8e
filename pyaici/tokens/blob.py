"""Builds the tokenizer.json for workers, whose tokens have exactly the bytes of the text."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from pyaici.tokens.pieces import components
from pyaici.tokens.vocabulary import TokenizerBlob


def tokenizers_blob(
    spec: dict[str, Any], special: Collection[int], marks: Collection[str] = ()
) -> TokenizerBlob:
    """Returns the blob of a parsed tokenizer.json; `special` are the ids of its special tokens.

    `marks`: texts of added tokens that are text, whatever the file says.

    Removes every part that changes the text (Unicode normal forms, lower case, a prepended space), and
    every part that encoding does not need (decoder, post-processor, truncation). Special tokens stay,
    since the ids of added tokens follow from their order; workers do not look for them in text.
    """
    renamed = _hidden_names(spec["model"], special)
    blob = {
        "version": spec.get("version", "1.0"),
        "truncation": None,
        "padding": None,
        "added_tokens": [
            _added_token(token, special, marks, renamed) for token in spec.get("added_tokens") or []
        ],
        "normalizer": _sequence("normalizers", _normalizers(spec)),
        "pre_tokenizer": _sequence("pretokenizers", _pre_tokenizers(spec)),
        "post_processor": None,
        "decoder": None,
        "model": _model(spec["model"], renamed),
    }
    return TokenizerBlob("tokenizers", json.dumps(blob, ensure_ascii=False, separators=(",", ":")).encode())


def _added_token(
    token: dict[str, Any], special: Collection[int], marks: Collection[str], renamed: dict[str, str]
) -> dict[str, Any]:
    content = renamed.get(token["content"], token["content"])
    is_special = (bool(token["special"]) and content not in marks) or token["id"] in special
    # A token that consumes the spaces around it would not have the same bytes as the text it matches.
    return {**token, "content": content, "special": is_special, "lstrip": False, "rstrip": False}


def _normalizers(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Keeps the normalizers that only replace spaces or map bytes to the byte alphabet."""
    return [
        part
        for part in components(spec.get("normalizer"))
        if part["type"] == "ByteLevel" or (part["type"] == "Replace" and part["pattern"].get("String") == " ")
    ]


def _pre_tokenizers(spec: dict[str, Any]) -> list[dict[str, Any]]:
    parts = components(spec.get("pre_tokenizer"))
    if any(part["type"] == "Metaspace" for part in parts):
        # Metaspace splits at spaces itself; WhitespaceSplit before it would drop all but one of them.
        parts = [part for part in parts if part["type"] != "WhitespaceSplit"]
    return [_without_prefix(part) for part in parts]


def _without_prefix(part: dict[str, Any]) -> dict[str, Any]:
    if part["type"] == "Metaspace":
        kept = {key: value for key, value in part.items() if key != "add_prefix_space"}
        return {**kept, "prepend_scheme": "never", "split": part.get("split", True)}
    if part["type"] == "ByteLevel":
        return {**part, "add_prefix_space": False}
    return part


def _sequence(key: str, parts: list[dict[str, Any]]) -> dict[str, Any] | None:
    if len(parts) < 2:
        return parts[0] if parts else None
    return {"type": "Sequence", key: parts}


def _hidden_names(model: dict[str, Any], special: Collection[int]) -> dict[str, str]:
    """Returns new names for the special pieces of a Unigram model; {} for other models.

    A Unigram model would find the pieces in text; the new names occur in no text.
    """
    if not isinstance(model["vocab"], list):
        return {}
    return {
        piece: f"\ue000special {token}\uf8ff"
        for token, (piece, _) in enumerate(model["vocab"])
        if token in special
    }


def _model(model: dict[str, Any], renamed: dict[str, str]) -> dict[str, Any]:
    model = {**model}
    if "dropout" in model:
        model["dropout"] = None
    if renamed:
        model["vocab"] = [[renamed.get(piece, piece), score] for piece, score in model["vocab"]]
    return model
