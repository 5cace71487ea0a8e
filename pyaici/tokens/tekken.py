"""Vocabularies from tekken.json, the tokenizer files of Mistral."""

from __future__ import annotations

import base64
from typing import Any

from aicirt.contract.errors import VocabularyError
from pyaici.tokens.tiktoken_ranks import vocabulary_from_ranks
from pyaici.tokens.vocabulary import Vocabulary

#: special tokens by id, for files that do not list them
_UNLISTED = (
    *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
    *("[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]"),
    *("[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"),
)


def is_tekken(spec: Any) -> bool:
    """Returns whether parsed JSON is a tekken file."""
    return isinstance(spec, dict) and "vocab" in spec and "default_vocab_size" in (spec.get("config") or {})


def vocabulary_from_tekken(spec: dict[str, Any], name: str) -> Vocabulary:
    """Returns the vocabulary of a parsed tekken.json.

    The special tokens have the lowest ids; the id of any other token is its rank plus their number.
    The file holds more ranks than the model has tokens; surplus ranks are dropped.
    Raises VocabularyError if sizes, special tokens or ranks are missing or invalid.
    """
    try:
        config = spec["config"]
        num_special = int(config["default_num_special_tokens"])
        vocab_size = int(config["default_vocab_size"])
        listed = spec.get("special_tokens") or [
            {"rank": rank, "token_str": text} for rank, text in enumerate(_UNLISTED[:num_special])
        ]
        special = {f"<SPECIAL_{rank}>": rank for rank in range(num_special)}
        for entry in listed:
            special.pop(f"<SPECIAL_{entry['rank']}>", None)
            special[entry["token_str"]] = int(entry["rank"])
        pattern = str(config["pattern"])
        ranks = {
            base64.b64decode(entry["token_bytes"]): num_special + int(entry["rank"])
            for entry in spec["vocab"]
            if entry["rank"] < vocab_size - num_special
        }
    except (KeyError, TypeError, ValueError) as error:
        raise VocabularyError(f"{name} is not a valid tekken file: {error!r}") from error
    return vocabulary_from_ranks(
        ranks,
        name=name,
        pattern=pattern,
        special=special,
        eos=(special["</s>"],) if "</s>" in special else (),
        bos=special.get("<s>"),
        pad=special.get("<pad>"),
        unk=special.get("<unk>"),
        vocab_size=vocab_size,
    )
