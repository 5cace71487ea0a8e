"""GGUF files, the format of llama.cpp: their headers, and the vocabularies in the headers' metadata.

A header has metadata and the places of the tensors. Source: the format's description in the ggml repository,
docs/gguf.md; versions 2 and 3, little-endian.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from aicirt.contract.errors import VocabularyError
from pyaici.tokens.companion import Companion
from pyaici.tokens.sentencepiece_model import (
    BPE,
    CONTROL,
    NORMAL,
    UNIGRAM,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    Piece,
    SentencePieceModel,
    tokenizer_json_of,
)
from pyaici.tokens.tokenizer_json import vocabulary_from_json

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyaici.tokens.vocabulary import Vocabulary

#: number types of the format: their `struct` code and numpy dtype
_NUMBERS = {
    0: ("B", "u1"),
    1: ("b", "i1"),
    2: ("H", "u2"),
    3: ("h", "i2"),
    4: ("I", "u4"),
    5: ("i", "i4"),
    6: ("f", "f4"),
    7: ("?", "?"),
    10: ("Q", "u8"),
    11: ("q", "i8"),
    12: ("d", "f8"),
}
_STRING, _ARRAY = 8, 9
#: bytes of a header: that of a vocabulary of a million tokens has 40 MB
_MAX_HEADER = 256 << 20
#: bounds of its parts; the largest models stay far below them
_MAX_KEYS, _MAX_TENSORS, _MAX_ITEMS, _MAX_BYTES = 1 << 12, 1 << 16, 1 << 22, 1 << 24


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """The header of a GGUF file."""

    #: values by key: numbers, texts as bytes, arrays as numpy arrays or lists of bytes
    metadata: dict[str, Any]
    #: offset of the first byte of tensor data in the file
    data_start: int
    #: names of the tensors
    tensors: list[str]

    def text(self, key: str, default: str = "") -> str:
        """Returns a text of the metadata, or `default` if there is none."""
        value = self.metadata.get(key)
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else default

    def number(self, key: str) -> int | None:
        """Returns an integer of the metadata, or None if there is none."""
        value = self.metadata.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None


def is_gguf(path: Path) -> bool:
    """Returns whether the file begins as a GGUF file does."""
    with path.open("rb") as file:
        return file.read(4) == b"GGUF"


def read_gguf_header(path: Path) -> GgufHeader:
    """Returns the header of a file.

    Raises VocabularyError if the file is not GGUF, is of another version, ends too early or contradicts
    itself; OSError if it cannot be read.
    """
    if not is_gguf(path):
        raise VocabularyError(f"{path} is not a GGUF file: it does not begin with GGUF")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return parse_gguf_header(data, str(path))


def parse_gguf_header(data: mmap.mmap | bytes, name: str) -> GgufHeader:
    """Returns the header of a file's contents. Raises VocabularyError as `read_gguf_header` does."""
    try:
        return _Reader(data).header()
    except (struct.error, ValueError) as error:
        raise VocabularyError(f"{name} is not a complete GGUF file: {error}; download it again") from None


class _Reader:
    def __init__(self, data: mmap.mmap | bytes) -> None:
        self._data = data
        self._end = min(len(data), _MAX_HEADER)
        self._at = 4

    def header(self) -> GgufHeader:
        version = self._number("I")
        if version not in (2, 3):
            raise ValueError(f"its version is {version}; versions 2 and 3 are supported")
        num_tensors, num_keys = self._number("Q"), self._number("Q")
        if num_tensors > _MAX_TENSORS or num_keys > _MAX_KEYS:
            raise ValueError(f"it declares {num_tensors} tensors and {num_keys} keys")
        metadata = {}
        for _ in range(num_keys):
            key = self._string().decode("utf-8", "replace")
            metadata[key] = self._value(self._number("I"))
        tensors = []
        for _ in range(num_tensors):
            tensors.append(self._string().decode("utf-8", "replace"))
            dimensions = self._number("I")
            if dimensions > 8:
                raise ValueError(f"the tensor {tensors[-1]!r} has {dimensions} dimensions")
            self._skip(8 * dimensions + 4 + 8)
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1:
            raise ValueError(f"its alignment is {alignment!r}")
        return GgufHeader(metadata, -(-self._at // alignment) * alignment, tensors)

    def _value(self, kind: int) -> Any:
        if kind in _NUMBERS:
            return self._number(_NUMBERS[kind][0])
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY:
            raise ValueError(f"a value has the unknown type {kind}")
        item, count = self._number("I"), self._number("Q")
        if count > _MAX_ITEMS:
            raise ValueError(f"an array has {count} items")
        if item == _STRING:
            return self._strings(count)
        if item not in _NUMBERS:
            raise ValueError(f"an array has items of type {item}")
        dtype = np.dtype(_NUMBERS[item][1])
        return np.frombuffer(self._skip(count * dtype.itemsize), dtype)

    def _number(self, code: str) -> Any:
        size = struct.calcsize(code)
        return struct.unpack("<" + code, self._skip(size))[0]

    def _string(self) -> bytes:
        size = self._number("Q")
        if size > _MAX_BYTES:
            raise ValueError(f"a text has {size} bytes")
        return self._skip(size)

    def _strings(self, count: int) -> list[bytes]:
        """Returns so many texts. A vocabulary has hundreds of thousands, so this loop makes few calls."""
        data, end, found = self._data, self._end, []
        for _ in range(count):
            start = self._at + 8
            size = int.from_bytes(data[self._at : start], "little")
            if size > _MAX_BYTES or start + size > end:
                self._string()  # raises the error
            self._at = start + size
            found.append(data[start : self._at])
        return found

    def _skip(self, size: int) -> bytes:
        end = self._at + size
        if end > self._end:
            if self._end == _MAX_HEADER:
                raise ValueError(f"its header has more than {_MAX_HEADER >> 20} MiB")
            raise ValueError(f"it ends at byte {len(self._data)}, in the middle of its header")
        part = self._data[self._at : end]
        self._at = end
        return part


# -- the vocabulary -----------------------------------------------------------------------------------------


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
    types += [NORMAL] * (len(tokens) - len(types))
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
                "special": kind != USER_DEFINED,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
            }
            for token, kind in enumerate(types)
            if kind in (UNKNOWN, CONTROL, USER_DEFINED, UNUSED)
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
        unk = types.index(UNKNOWN) if UNKNOWN in types else 0
    # merges of a file are not in the order of the scores
    return tokenizer_json_of(SentencePieceModel(pieces, UNIGRAM if unigram else BPE, unk), _merges(header))
