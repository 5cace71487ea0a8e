"""Vocabularies from tokenizer objects of the Transformers library, fast and slow."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aicirt.contract.errors import VocabularyError
from pyaici.tokens.companion import Companion, read_companion
from pyaici.tokens.sentencepiece_model import tokenizer_json_from_model
from pyaici.tokens.tiktoken_ranks import vocabulary_from_ranks
from pyaici.tokens.tokenizer_json import vocabulary_from_json
from pyaici.tokens.vocabulary import Vocabulary


def is_transformers_tokenizer(source: object) -> bool:
    """Returns whether an object looks like a Transformers tokenizer, without importing the library."""
    members = ("convert_ids_to_tokens", "all_special_tokens", "name_or_path")
    return all(hasattr(source, name) for name in members)


def vocabulary_from_transformers(
    source: Any, load_file: Callable[[Path], Vocabulary], adjust: Callable[[Companion], Companion]
) -> Vocabulary:
    """Returns the vocabulary of a Transformers tokenizer.

    `load_file` reads the file behind a tokenizer that only wraps one (mistral-common). If the tokenizer
    was loaded from a folder, the files there give the tokens that end a text and the width of the logits;
    `adjust` overrides them with the caller's values.
    Raises VocabularyError, naming the class, if the bytes of its tokens cannot be found out.
    """
    if wrapped := getattr(getattr(source, "tokenizer", None), "instruct_tokenizer", None):
        return load_file(Path(wrapped.tokenizer.file_path))
    name = str(source.name_or_path)
    companion = adjust(_companion(source))
    if backend := getattr(source, "backend_tokenizer", None):
        return vocabulary_from_json(json.loads(backend.to_str()), companion, name)
    if encoding := _tiktoken_encoding(source):
        return _from_encoding(encoding, source, companion, name)
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


def _tiktoken_encoding(source: Any) -> Any:
    """Returns the `tiktoken.Encoding` in an attribute of a tokenizer that wraps one, or None."""
    wanted = ("_mergeable_ranks", "_pat_str", "_special_tokens")
    values = vars(source).values()
    return next((value for value in values if all(hasattr(value, name) for name in wanted)), None)


def _from_encoding(encoding: Any, source: Any, companion: Companion, name: str) -> Vocabulary:
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
