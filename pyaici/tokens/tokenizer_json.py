"""Vocabularies from tokenizer.json, the format of the `tokenizers` package."""

from __future__ import annotations

from typing import Any

from aicirt.contract.errors import VocabularyError
from pyaici.tokens.blob import tokenizers_blob
from pyaici.tokens.companion import Companion
from pyaici.tokens.markup import markup
from pyaici.tokens.pieces import piece_rule
from pyaici.tokens.vocabulary import Vocabulary, tokens_by_id


def vocabulary_from_json(spec: dict[str, Any], companion: Companion, name: str) -> Vocabulary:
    """Returns the vocabulary of a parsed tokenizer.json and the files next to it.

    Raises VocabularyError if the file is not a tokenizer.json or has an unknown model or decoder.
    """
    model = _model(spec)
    pieces, unk = _pieces(model)
    rule = piece_rule(spec)
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
        tokenizer=tokenizers_blob(spec, special, marks),
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
