"""Facts about a tokenizer's tokens from the configuration files next to it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aicirt.contract.errors import VocabularyError
from pyaici.tokens.vocabulary import Vocabulary

_ROLES = ("bos", "eos", "pad", "unk", "sep", "cls", "mask")


@dataclass
class Companion:
    """Facts about a tokenizer that are not in the tokenizer itself."""

    #: added tokens: id -> (text, special)
    added: dict[int, tuple[str, bool]] = field(default_factory=dict)
    #: role ("eos", ...) -> text of the token
    roles: dict[str, str] = field(default_factory=dict)
    #: texts of further special tokens
    special: set[str] = field(default_factory=set)
    #: ids that end a text; from the generation configuration, else the model configuration
    eos: tuple[int, ...] = ()
    #: width of the logits, from the model configuration
    vocab_size: int | None = None

    def configure(self, vocabulary: Vocabulary) -> Vocabulary:
        """Returns the vocabulary with the end tokens and the width from the model's configuration.

        Raises VocabularyError if an end token is beyond all tokens.
        """
        width = self.vocab_size or vocabulary.vocab_size
        vocabulary = vocabulary.cut(max(width, vocabulary.vocab_size))
        if self.eos:
            vocabulary = vocabulary.ending_with(self.eos)
        return vocabulary.cut(width)


def token_ids(value: int | Iterable[int] | None) -> tuple[int, ...]:
    """Converts a configuration's single id, list of ids or null to a tuple without duplicates."""
    if value is None:
        return ()
    return (value,) if isinstance(value, int) else tuple(dict.fromkeys(int(token) for token in value))


def read_companion(folder: Path) -> Companion:
    """Reads tokenizer_config.json, special_tokens_map.json, generation_config.json and config.json.

    Skips missing files. Raises VocabularyError if a file is not a JSON object.
    """
    found = Companion()
    settings = _read_json(folder / "special_tokens_map.json") | _read_json(folder / "tokenizer_config.json")
    for role in _ROLES:
        if text := _text_of(settings.get(f"{role}_token")):
            found.roles[role] = text
    for key in ("additional_special_tokens", "extra_special_tokens"):
        extra = settings.get(key) or []
        values = extra.values() if isinstance(extra, dict) else extra
        found.special.update(filter(None, map(_text_of, values)))
    for token, entry in (settings.get("added_tokens_decoder") or {}).items():
        found.added[int(token)] = (entry["content"], bool(entry.get("special")))
    config = _read_json(folder / "config.json")
    text_config = config.get("text_config") or {}
    found.vocab_size = config.get("vocab_size") or text_config.get("vocab_size")
    for source in (_read_json(folder / "generation_config.json"), config, text_config):
        if ids := token_ids(source.get("eos_token_id")):
            found.eos = ids
            break
    return found


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:
        raise VocabularyError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise VocabularyError(f"{path} must be a JSON object, not {type(content).__name__}")
    return content


def _text_of(token: Any) -> str | None:
    """Returns the text of a token, which a configuration gives as a string or as an object."""
    return token.get("content") if isinstance(token, dict) else token
