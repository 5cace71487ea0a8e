"""Vocabularies from the metadata of GGUF files, the format of llama.cpp."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aicirt.contract.errors import VocabularyError
from pyaici.tokens.companion import Companion
from pyaici.tokens.sentencepiece_model import Piece, SentencePieceModel, tokenizer_json_of
from pyaici.tokens.tokenizer_json import vocabulary_from_json

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyaici.tokens.gguf_header import GgufHeader
    from pyaici.tokens.vocabulary import Vocabulary

#: token types of the format
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = 1, 2, 3, 4, 5, 6
#: how text is split into words before the merges, by the name in `tokenizer.ggml.pre`
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_QWEN35 = _QWEN2.replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]")
_DIGITS = r"\p{N}"
#: words that change from small to capital letters are split there
_WORDS = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+%s"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*%s"
    r"|%s| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_ENDINGS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_GPT4O = _WORDS % (_ENDINGS, _ENDINGS, r"\p{N}{1,3}")
_TEKKEN = _WORDS % ("", "", r"\p{N}")
_HAN, _KANA = "\u4e00-\u9fa5", "\u3040-\u309f\u30a0-\u30ff"
_DEEPSEEK3 = (
    r"\p{N}{1,3}",
    f"[{_HAN}{_KANA}]+",
    r"[!-/:-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)
_EAST = f"[{_HAN}\u0800-\u4e00\uac00-\ud7ff]+"
_DEEPSEEK_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _EAST, r"\p{N}")
#: letters of scripts that have cases, and ASCII, full-width and CJK punctuation
_DEEPSEEK_LLM = (
    r"[\r\n]",
    r"\s?[\p{Lu}\p{Ll}\p{Lt}]+",
    r"\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
    r"\s+$",
    _EAST,
    r"\p{N}+",
)
_FALCON = (r"[\p{P}$+<=>^~|`]+", _GPT2, r"[0-9][0-9][0-9]")
_PATTERNS: dict[str, tuple[str, ...]] = {
    name: patterns
    for names, patterns in (
        ("smollm starcoder refact command-r codeshell exaone minerva-7b mellum2", (_DIGITS, _GPT2)),
        ("llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral lfm2 smaug-bpe dbrx glm4 glm5", (_LLAMA3,)),
        ("qwen2 deepseek-r1-qwen megrez stablelm2 hunyuan kormo solar-open grok-2", (_QWEN2,)),
        ("qwen35", (_QWEN35,)),
        ("gpt-4o llama4 kanana2 minimax-m2", (_GPT4O,)),
        ("tekken", (_TEKKEN,)),
        ("deepseek-v3 hunyuan-dense joyai-llm hy_v4", _DEEPSEEK3),
        ("deepseek-coder", _DEEPSEEK_CODER),
        ("deepseek-llm", _DEEPSEEK_LLM),
        ("falcon", _FALCON),
    )
    for name in names.split()
}
#: tokenizers in which a word that is a token is that token, whatever the merges make of it
_WHOLE_WORDS = frozenset(
    ["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "lfm2", "glm4", "glm5", "tekken"]
)


def vocabulary_from_gguf(header: GgufHeader, companion: Companion, name: str) -> Vocabulary:
    """Returns the vocabulary of a GGUF file, with what the caller knows about its tokens.

    Texts that controllers tokenize are split as the file's `tokenizer.ggml.pre` says, or as GPT-2 does for
    names that are not known here. The bytes of tokens do not depend on that.

    Raises VocabularyError if the file has no tokenizer, or one of a kind that generating models do not have.
    """
    kind = header.text("tokenizer.ggml.model")
    tokens = _texts(header, "tokenizer.ggml.tokens")
    if not tokens:
        raise VocabularyError(
            f"{name} has no tokenizer (no tokenizer.ggml.tokens): it is no language model, or a part of one"
        )
    types = _numbers(header, "tokenizer.ggml.token_type")[: len(tokens)].astype(int).tolist()
    types += [_NORMAL] * (len(tokens) - len(types))
    if kind == "gpt2":
        spec = _byte_level(header, tokens, types)
    elif kind in ("llama", "t5", "gemma4"):
        spec = _sentencepiece(header, tokens, types, unigram=kind == "t5")
    else:
        raise VocabularyError(
            f"{name} has a tokenizer of the kind {kind!r}; the kinds gpt2, llama and t5 are supported"
        )
    ids = {
        role: token
        for role, key in (
            ("bos", "bos_token_id"),
            ("eos", "eos_token_id"),
            ("pad", "padding_token_id"),
            ("unk", "unknown_token_id"),
        )
        if (token := header.number(f"tokenizer.ggml.{key}")) is not None and 0 <= token < len(tokens)
    }
    companion.roles = {**{role: tokens[token] for role, token in ids.items()}, **companion.roles}
    if not companion.eos:
        ends = [ids.get("eos"), header.number("tokenizer.ggml.eot_token_id")]
        companion.eos = tuple(dict.fromkeys(t for t in ends if t is not None and 0 <= t < len(tokens)))
    return vocabulary_from_json(spec, companion, name)


def _texts(header: GgufHeader, key: str) -> list[str]:
    """Returns an array of texts, empty if the file has none."""
    found = header.metadata.get(key)
    return [text.decode("utf-8", "replace") for text in found] if isinstance(found, list) else []


def _numbers(header: GgufHeader, key: str) -> NDArray[Any]:
    """Returns an array of numbers, empty if the file has none."""
    found = header.metadata.get(key)
    return found if isinstance(found, np.ndarray) else np.empty(0, np.int32)


def _byte_level(header: GgufHeader, tokens: list[str], types: list[int]) -> dict[str, Any]:
    """Returns the tokenizer.json of a byte-level BPE tokenizer."""
    patterns = _PATTERNS.get(header.text("tokenizer.ggml.pre"), (_GPT2,))
    splits = [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        for pattern in patterns
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    vocab: dict[str, int] = {}
    for token, text in enumerate(tokens):
        vocab.setdefault(text, token)
    return {
        "added_tokens": [
            {
                "id": token,
                "content": tokens[token],
                "special": kind != _USER_DEFINED,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
            }
            for token, kind in enumerate(types)
            if kind in (_UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED)
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*splits, byte_level]},
        "decoder": {"type": "ByteLevel"},
        "model": {
            "type": "BPE",
            "vocab": vocab,
            "merges": _merges(header),
            "unk_token": None,
            "byte_fallback": False,
            "ignore_merges": header.text("tokenizer.ggml.pre") in _WHOLE_WORDS,
        },
    }


def _merges(header: GgufHeader) -> list[list[str]]:
    merges = [text.split(" ", 1) for text in _texts(header, "tokenizer.ggml.merges")]
    return [merge for merge in merges if len(merge) == 2]


def _sentencepiece(
    header: GgufHeader, tokens: list[str], types: list[int], *, unigram: bool
) -> dict[str, Any]:
    scores = _numbers(header, "tokenizer.ggml.scores")[: len(tokens)].astype(float).tolist()
    scores += [0.0] * (len(tokens) - len(scores))
    pieces = [Piece(*piece) for piece in zip(tokens, scores, types, strict=False)]
    unk = header.number("tokenizer.ggml.unknown_token_id")
    if unk is None or not 0 <= unk < len(tokens):
        unk = types.index(_UNKNOWN) if _UNKNOWN in types else 0
    # merges of a file are not in the order of the scores
    return tokenizer_json_of(SentencePieceModel(pieces, 1 if unigram else 2, unk), _merges(header))
