"""Loads a vocabulary from a tokenizer object, a file or a model's folder."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from aicirt.contract.errors import VocabularyError
from pyaici.tokens.companion import Companion, read_companion, token_ids
from pyaici.tokens.gguf import vocabulary_from_gguf
from pyaici.tokens.gguf_header import is_gguf, read_gguf_header
from pyaici.tokens.rwkv import vocabulary_from_rwkv
from pyaici.tokens.sentencepiece_model import tokenizer_json_from_model
from pyaici.tokens.tekken import is_tekken, vocabulary_from_tekken
from pyaici.tokens.tiktoken_ranks import read_rank_file, vocabulary_from_encoding, vocabulary_from_ranks
from pyaici.tokens.tokenizer_json import vocabulary_from_json
from pyaici.tokens.transformers_tokenizer import is_transformers_tokenizer, vocabulary_from_transformers
from pyaici.tokens.vocabulary import Vocabulary

#: files that hold a tokenizer, in the order in which a folder is searched
_TOKENIZER_FILES = ("tokenizer.json", "tekken.json", "tokenizer.model")

_Adjust = Callable[[Companion], Companion]

_RANK_LINE = re.compile(rb"[A-Za-z0-9+/]+={0,2} \d+\r?\n")
_RWKV_LINE = re.compile(rb"\d+ b?['\"]")


def load_vocabulary(
    source: object,
    *,
    name: str | None = None,
    vocab_size: int | None = None,
    eos: int | Iterable[int] | None = None,
) -> Vocabulary:
    """Returns the byte-exact vocabulary of a tokenizer.

    `source` is a tokenizer of Transformers, `tokenizers` or tiktoken, or a path. The path names a
    tokenizer.json, tekken.json, .tiktoken, SentencePiece .model, RWKV World or GGUF file, or the folder
    of a model. Configuration files next to it (generation_config.json, config.json, ...) are read too.
    `vocab_size` (the width of the logits) and `eos` (one id or several, as in a generation configuration)
    override these files.

    A .tiktoken file alone contains neither the rule that splits text into words nor the special tokens:
    pass both to `vocabulary_from_ranks`.

    Raises VocabularyError if the source has none of these formats, or the bytes of its tokens are unknown.
    """

    def adjust(companion: Companion) -> Companion:
        companion.vocab_size = vocab_size or companion.vocab_size
        companion.eos = token_ids(eos) or companion.eos
        return companion

    if isinstance(source, (str, Path)):
        vocabulary = _from_path(Path(source), adjust)
    elif is_transformers_tokenizer(source):
        vocabulary = _from_transformers(source, adjust)
    elif hasattr(source, "to_str") and hasattr(source, "get_vocab_size"):
        vocabulary = vocabulary_from_json(json.loads(source.to_str()), adjust(Companion()), "tokenizers")
    elif hasattr(source, "_mergeable_ranks") and hasattr(source, "_pat_str"):
        vocabulary = adjust(Companion()).configure(vocabulary_from_encoding(source))
    else:
        raise VocabularyError(
            f"{type(source).__name__} is not a tokenizer: give a tokenizer of Transformers, tokenizers or "
            "tiktoken, or a path"
        )
    return vocabulary if name is None else replace(vocabulary, name=name)


def _from_transformers(source: object, adjust: _Adjust) -> Vocabulary:
    return vocabulary_from_transformers(source, lambda path: _from_file(path, adjust(Companion())), adjust)


def _from_path(path: Path, adjust: _Adjust) -> Vocabulary:
    if path.is_file():
        # a GGUF file is complete; the files next to it may belong to other models
        companion = Companion() if is_gguf(path) else read_companion(path.parent)
        return _from_file(path, adjust(companion))
    if not path.is_dir():
        raise VocabularyError(f"there is no file or folder {path}")
    for file in _TOKENIZER_FILES:
        if (path / file).is_file():
            return replace(_from_path(path / file, adjust), name=path.name)
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise VocabularyError(
            f"{path} has none of {', '.join(_TOKENIZER_FILES)}; other formats need Transformers: "
            'pip install "pyaici[hf]"'
        ) from error
    try:
        # without the last argument, it may ask on the terminal whether to run the folder's Python files
        tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        if "trust_remote_code" in str(error):
            raise VocabularyError(
                f"the tokenizer in {path} is a Python file: if you trust it, load it with "
                "AutoTokenizer.from_pretrained(..., trust_remote_code=True), and pass the result"
            ) from None
        raise VocabularyError(f"{path} has no tokenizer that Transformers can load: {error}") from error
    return _from_transformers(tokenizer, adjust)


def _from_file(path: Path, companion: Companion) -> Vocabulary:
    """Reads a tokenizer file, whose format it detects from the content."""
    name = path.name
    if is_gguf(path):
        return vocabulary_from_gguf(read_gguf_header(path), companion, name)
    data = path.read_bytes()
    if data.lstrip()[:1] == b"{":
        spec = _parse(data, path)
        if is_tekken(spec):
            return companion.configure(vocabulary_from_tekken(spec, name))
        try:
            return vocabulary_from_json(spec, companion, name)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise VocabularyError(f"{path} is not a valid tokenizer.json: {error!r}") from error
    if _RANK_LINE.match(data):
        return companion.configure(vocabulary_from_ranks(read_rank_file(path), name=name))
    if _RWKV_LINE.match(data):
        return companion.configure(vocabulary_from_rwkv(path, name))
    spec, roles = tokenizer_json_from_model(data)
    companion.roles = {**roles, **companion.roles}
    return vocabulary_from_json(spec, companion, name)


def _parse(data: bytes, path: Path) -> dict[str, Any]:
    try:
        spec: dict[str, Any] = json.loads(data)
    except ValueError as error:
        raise VocabularyError(f"{path} is not JSON: {error}") from error
    return spec
