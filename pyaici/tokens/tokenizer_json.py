"""Vocabularies from tokenizer.json, the format of the `tokenizers` package.

The file gives the pieces of the tokens, and its decoder gives the rule for the bytes of a piece. Workers load
a copy of the file without the parts that change a text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from typing import Any

from aicirt.contract.errors import VocabularyError
from pyaici.tokens.companion import Companion
from pyaici.tokens.vocabulary import TokenizerBlob, Vocabulary, tokens_by_id

PieceRule = Callable[[str], bytes]


def vocabulary_from_json(spec: dict[str, Any], companion: Companion, name: str) -> Vocabulary:
    """Returns the vocabulary of a parsed tokenizer.json and the files next to it.

    Raises VocabularyError if the file is not a tokenizer.json or has an unknown model or decoder.
    """
    model = _model(spec)
    pieces, unk = _pieces(model)
    rule = _piece_rule(spec)
    text = {token: rule(piece) for piece, token in pieces.items()}
    special: dict[int, str] = {}
    ids = dict(pieces)
    added = _added(spec, companion)
    marks = markup([content for _, content, _ in added]) - {*companion.roles.values()}
    for token, content, is_special in added:
        ids[content] = token
        if is_special and content not in marks:
            special[token] = content
        elif pieces.get(content) != token:
            # It is not a piece of the model: the tokenizer matches its literal text.
            text[token] = content.encode()
    if unk is not None:
        special.setdefault(unk[0], unk[1])
    for content in {*companion.roles.values(), *companion.special} - marks:
        if content in ids:
            special[ids[content]] = content

    tokens = tokens_by_id({**text, **dict.fromkeys(special, b"")})
    roles = {role: ids[content] for role, content in companion.roles.items() if content in ids}
    vocabulary = Vocabulary(
        tokens=tokens,
        special_names=special,
        eos=(roles["eos"],) if "eos" in roles else (),
        bos=roles.get("bos"),
        pad=roles.get("pad"),
        unk=roles.get("unk", unk[0] if unk else None),
        vocab_size=max(len(tokens), companion.vocab_size or 0),
        name=name,
        tokenizer=_tokenizers_blob(spec, special, marks),
    )
    return companion.configure(vocabulary)


def _model(spec: dict[str, Any]) -> dict[str, Any]:
    model = spec.get("model")
    if not isinstance(model, dict) or "vocab" not in model:
        raise VocabularyError("this is not a tokenizer.json: it has no model with a vocabulary")
    if "type" not in model:  # files of early versions
        mapped = "BPE" if "merges" in model else "WordPiece"
        model["type"] = "Unigram" if isinstance(model["vocab"], list) else mapped
    return model


def _pieces(model: dict[str, Any]) -> tuple[dict[str, int], tuple[int, str] | None]:
    """Returns piece -> id, and the token for unknown text as (id, piece), or None."""
    kind, vocab = model["type"], model["vocab"]
    if kind == "Unigram":
        unk_id = model.get("unk_id")
        pieces = {piece: token for token, (piece, _) in enumerate(vocab)}
        return pieces, None if unk_id is None else (unk_id, vocab[unk_id][0])
    if kind in ("BPE", "WordPiece"):
        unk = model.get("unk_token")
        return vocab, None if unk not in vocab else (vocab[unk], str(unk))
    raise VocabularyError(
        f"tokenizer.json has a model of type {kind}; only BPE, Unigram and WordPiece are supported"
    )


def _added(spec: dict[str, Any], companion: Companion) -> list[tuple[int, str, bool]]:
    """Returns the added tokens as (id, text, special), from tokenizer.json and the files next to it."""
    listed = spec.get("added_tokens") or []
    found = {token["id"]: (token["content"], bool(token["special"])) for token in listed}
    for token, (content, special) in companion.added.items():
        known = found.get(token)
        found[token] = (content, special or (known is not None and known[1]))
    return [(token, content, special) for token, (content, special) in sorted(found.items())]


def _components(part: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Returns the members of a normalizer, pre-tokenizer or decoder, with sequences flattened."""
    if not part:
        return []
    members = part.get("normalizers") or part.get("pretokenizers") or part.get("decoders")
    if part["type"] == "Sequence":
        return [leaf for member in members or [] for leaf in _components(member)]
    return [part]


# -- marks of tool calls ------------------------------------------------------------------------------------

#: Marks of tool calls, which models write inside an answer. Tokenizers list many of them as special tokens,
#: which no text has; but a grammar must be able to ask for them. A tokenizer that lacks a mark of a set uses
#: the others for something else.
_SETS = (
    frozenset({"[TOOL_CALLS]"}),
    frozenset({"[TOOL_CALLS]", "[ARGS]"}),
    frozenset({"<|tool_call|>", "<|/tool_call|>"}),
    frozenset({"<|START_ACTION|>", "<|END_ACTION|>"}),
    frozenset(
        {
            "<｜tool▁calls▁begin｜>",
            "<｜tool▁call▁begin｜>",
            "<｜tool▁sep｜>",
            "<｜tool▁call▁end｜>",
            "<｜tool▁calls▁end｜>",
        }
    ),
    # gpt-oss; its <|call|> and <|return|> end an answer
    frozenset({"<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>"}),
)


def markup(names: Collection[str]) -> frozenset[str]:
    """Returns those of a tokenizer's added tokens that are text although the tokenizer may say special."""
    return frozenset().union(*(marks for marks in _SETS if all(mark in names for mark in marks)))


# -- the bytes of a piece -----------------------------------------------------------------------------------


def _piece_rule(spec: dict[str, Any]) -> PieceRule:
    """Returns the rule for the pieces of a parsed tokenizer.json.

    - ByteLevel: the byte alphabet of GPT-2.
    - Metaspace, Replace, ByteFallback (SentencePiece): `▁` is a space, `<0xNN>` one byte. Settings
      that remove the first space of a whole text (Fuse then Strip, prepend_scheme) are ignored.
    - WordPiece: `##ing` continues a word, anything else begins one after a space: b" the".
      The decoder's cleanup of spaces around punctuation is ignored.
    - BPEDecoder: the suffix `</w>` ends a word: b"the ".

    Raises VocabularyError, naming the component, for any other combination.
    """
    decoder = _components(spec.get("decoder"))
    kinds = {part["type"] for part in decoder}
    encoders = {part["type"] for part in _components(spec.get("normalizer"))}
    encoders |= {part["type"] for part in _components(spec.get("pre_tokenizer"))}
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
        return _byte_level_bytes
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
        return _byte_level_bytes
    if "Metaspace" in encoders:
        parts = [part for part in _components(spec.get("pre_tokenizer")) if part["type"] == "Metaspace"]
        return _text_rule(parts, bool(spec["model"].get("byte_fallback")))
    raise VocabularyError(
        f"tokenizer.json has no decoder (model {spec['model'].get('type')}): "
        "the bytes of its pieces are unknown"
    )


_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


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


def _alphabet() -> dict[str, int]:
    # Printable Latin-1 characters stand for themselves; the other bytes, in order, are
    # written as U+0100, U+0101, ...
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    table = {chr(byte): byte for byte in printable}
    table.update((chr(0x100 + number), byte) for number, byte in enumerate(others))
    return table


_BYTE_OF = _alphabet()


def _byte_level_bytes(piece: str) -> bytes:
    """Returns the bytes of a piece written in the byte alphabet.

    A piece that contains any other character (an added token such as "    ") is literal text,
    as in the ByteLevel decoder of `tokenizers`.
    """
    try:
        return bytes([_BYTE_OF[char] for char in piece])
    except KeyError:
        return piece.encode()


# -- the tokenizer of workers -------------------------------------------------------------------------------


def _tokenizers_blob(
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
        "model": _worker_model(spec["model"], renamed),
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
        for part in _components(spec.get("normalizer"))
        if part["type"] == "ByteLevel" or (part["type"] == "Replace" and part["pattern"].get("String") == " ")
    ]


def _pre_tokenizers(spec: dict[str, Any]) -> list[dict[str, Any]]:
    parts = _components(spec.get("pre_tokenizer"))
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


def _worker_model(model: dict[str, Any], renamed: dict[str, str]) -> dict[str, Any]:
    model = {**model}
    if "dropout" in model:
        model["dropout"] = None
    if renamed:
        model["vocab"] = [[renamed.get(piece, piece), score] for piece, score in model["vocab"]]
    return model
