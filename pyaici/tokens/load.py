"""Loads a vocabulary from a file, a model's folder or a tokenizer object."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from aicirt.contract.errors import MALFORMED, VocabularyError
from pyaici.tokens.companion import Companion, read_companion, token_ids
from pyaici.tokens.gguf import is_gguf, read_gguf_header, vocabulary_from_gguf
from pyaici.tokens.sentencepiece_model import tokenizer_json_from_model
from pyaici.tokens.token_lists import (
    is_tekken,
    read_rank_file,
    vocabulary_from_encoding,
    vocabulary_from_ranks,
    vocabulary_from_rwkv,
    vocabulary_from_tekken,
)
from pyaici.tokens.tokenizer_json import vocabulary_from_json
from pyaici.tokens.vocabulary import Vocabulary

#: changes the facts about a model to what the caller of `load_vocabulary` says
_Adjust = Callable[[Companion], Companion]


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

    try:
        vocabulary = _load(source, adjust)
    except MALFORMED as error:
        raise VocabularyError(f"{source!s:.300} is not a valid tokenizer: {error!r:.300}") from error
    return vocabulary if name is None else replace(vocabulary, name=name)


def _load(source: object, adjust: _Adjust) -> Vocabulary:
    if isinstance(source, (str, Path)):
        return _from_path(Path(source), adjust)
    if _is_transformers_tokenizer(source):
        return _from_transformers(source, adjust)
    if hasattr(source, "to_str") and hasattr(source, "get_vocab_size"):
        return vocabulary_from_json(json.loads(source.to_str()), adjust(Companion()), "tokenizers")
    if _is_encoding(source):
        return adjust(Companion()).configure(vocabulary_from_encoding(source))
    wanted = "give one of Transformers, tokenizers or tiktoken, or a path"
    raise VocabularyError(f"{type(source).__name__} is not a tokenizer: {wanted}")


# -- files --------------------------------------------------------------------------------------------------

#: files that hold a tokenizer, in the order in which a folder is searched
_TOKENIZER_FILES = ("tokenizer.json", "tekken.json", "tokenizer.model")

_RANK_LINE = re.compile(rb"[A-Za-z0-9+/]+={0,2} \d+\r?\n")
_RWKV_LINE = re.compile(rb"\d+ b?['\"]")


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
    except Exception as error:  # the libraries raise plain Exception, too
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
        spec = json.loads(data)
        if is_tekken(spec):
            return companion.configure(vocabulary_from_tekken(spec, name))
        return vocabulary_from_json(spec, companion, name)
    if _RANK_LINE.match(data):
        return companion.configure(vocabulary_from_ranks(read_rank_file(path), name=name))
    if _RWKV_LINE.match(data):
        return companion.configure(vocabulary_from_rwkv(path, name))
    spec, roles = tokenizer_json_from_model(data)
    companion.roles = {**roles, **companion.roles}
    return vocabulary_from_json(spec, companion, name)


# -- objects ------------------------------------------------------------------------------------------------


def _is_encoding(source: object) -> bool:
    """Returns whether an object looks like a `tiktoken.Encoding`, without importing the package."""
    return all(hasattr(source, name) for name in ("_mergeable_ranks", "_pat_str", "_special_tokens"))


def _is_transformers_tokenizer(source: object) -> bool:
    """Returns whether an object looks like a Transformers tokenizer, without importing the library."""
    members = ("convert_ids_to_tokens", "all_special_tokens", "name_or_path")
    return all(hasattr(source, name) for name in members)


def _from_transformers(source: Any, adjust: _Adjust) -> Vocabulary:
    """Returns the vocabulary of a Transformers tokenizer, fast or slow.

    If the tokenizer was loaded from a folder, the files there give the tokens that end a text and the width
    of the logits. Raises VocabularyError, naming the class, if the bytes of its tokens cannot be found out.
    """
    if wrapped := getattr(getattr(source, "tokenizer", None), "instruct_tokenizer", None):
        # mistral-common: the object only wraps a file
        return _from_file(Path(wrapped.tokenizer.file_path), adjust(Companion()))
    name = str(source.name_or_path)
    companion = adjust(_companion(source))
    if backend := getattr(source, "backend_tokenizer", None):
        return vocabulary_from_json(json.loads(backend.to_str()), companion, name)
    if encoding := next(filter(_is_encoding, vars(source).values()), None):
        return _from_encoding(encoding, companion, name)
    if model := getattr(source, "sp_model", None):
        spec, _ = tokenizer_json_from_model(model.serialized_model_proto())
        return vocabulary_from_json(_renumbered(spec, source), companion, name)
    return vocabulary_from_json(_converted(source), companion, name)


def _companion(source: Any) -> Companion:
    """Collects the object's special tokens, and the facts about the model in its folder."""
    folder = Path(source.name_or_path)
    found = read_companion(folder) if source.name_or_path and folder.is_dir() else Companion()
    roles = {role: getattr(source, f"{role}_token", None) for role in ("bos", "eos", "pad", "unk")}
    found.roles = {role: str(text) for role, text in roles.items() if text is not None}
    found.special = set(map(str, source.all_special_tokens))
    found.added = {
        int(token): (str(entry), bool(getattr(entry, "special", False)))
        for token, entry in source.added_tokens_decoder.items()
    }
    return found


def _from_encoding(encoding: Any, companion: Companion, name: str) -> Vocabulary:
    """Returns the vocabulary of the `tiktoken.Encoding` that a tokenizer wraps."""
    special = {**encoding._special_tokens}
    special.update((text, token) for token, (text, is_special) in companion.added.items() if is_special)
    ids = {role: special[text] for role, text in companion.roles.items() if text in special}
    vocabulary = vocabulary_from_ranks(
        encoding._mergeable_ranks,
        name=name,
        pattern=encoding._pat_str,
        special=special,
        eos=(ids["eos"],) if "eos" in ids else (),
        bos=ids.get("bos"),
        pad=ids.get("pad"),
        unk=ids.get("unk"),
    )
    return companion.configure(vocabulary)


def _renumbered(spec: dict[str, Any], source: Any) -> dict[str, Any]:
    """Gives the pieces of a SentencePiece model the ids of the tokenizer that wraps it.

    Some tokenizers (fairseq) put tokens of their own before the pieces of the model.
    """
    model = spec["model"]
    if not isinstance(model["vocab"], dict):
        scores = dict(model["vocab"])
        lowest = min(scores.values())
        unk = model["vocab"][model["unk_id"]][0]
        own = [str(source.convert_ids_to_tokens(token)) for token in range(source.vocab_size)]
        model["vocab"] = [[piece, scores.get(piece, lowest)] for piece in own]
        model["unk_id"] = own.index(unk) if unk in own else source.unk_token_id
        numbers = {piece: token for token, piece in enumerate(own)}
    else:
        numbers = {str(source.convert_ids_to_tokens(token)): token for token in range(source.vocab_size)}
        model["vocab"] = numbers
        model["merges"] = [pair for pair in model["merges"] if {*pair, "".join(pair)} <= numbers.keys()]
    spec["added_tokens"] = [
        {**token, "id": numbers[token["content"]]}
        for token in spec["added_tokens"]
        if token["content"] in numbers
    ]
    return spec


def _converted(source: Any) -> dict[str, Any]:
    """Converts any other slow tokenizer to a tokenizer.json with the library's own converters."""
    try:
        from transformers.convert_slow_tokenizer import convert_slow_tokenizer

        spec: dict[str, Any] = json.loads(convert_slow_tokenizer(source).to_str())
    except Exception as error:  # converters may raise any exception
        raise VocabularyError(
            f"the bytes of the tokens of {type(source).__name__} are unknown: it has no tokenizers backend, "
            f"tiktoken encoding or SentencePiece model, and it cannot be converted ({error})"
        ) from error
    return spec
