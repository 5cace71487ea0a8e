"""Vocabularies: the exact bytes of every token id."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from aicirt.contract.errors import VocabularyError
from aicirt.vocab.image import fingerprint_of

#: ids that a file may use: the runtime accepts no more, and one wrong number must not exhaust the memory
MAX_TOKENS = 1 << 22
#: the member of `Vocabulary.tokenizer_json` that comes first
_ADDED = '"added_tokens":'


def tokens_by_id(found: Mapping[int, bytes]) -> list[bytes]:
    """Returns the bytes of each token as a list, b"" for missing ids.

    Raises VocabularyError for an empty mapping, negative ids or ids beyond `MAX_TOKENS`.
    """
    if not found:
        raise VocabularyError("the vocabulary is empty")
    if min(found) < 0 or max(found) >= MAX_TOKENS:
        raise VocabularyError(
            f"token ids must be between 0 and {MAX_TOKENS - 1}, not {min(found)} to {max(found)}"
        )
    return [found.get(token, b"") for token in range(max(found) + 1)]


@dataclass(frozen=True)
class TokenizerBlob:
    """A tokenizer as workers load it; `aicirt.vocab.tokenizer` describes the kinds and their data."""

    kind: str = "greedy"
    data: bytes = b""


@dataclass(frozen=True)
class Vocabulary:
    """A model's tokens: their bytes, special tokens, the logits' width and the tokenizer.

    The bytes of a token are those that it adds in the middle of a text. Some tokenizers (SentencePiece)
    prepend a space to a text, or remove it when they decode. This has no effect here: the bytes of
    `▁the` are b" the", also at the start.

    Raises VocabularyError if the parts contradict each other.
    """

    #: the bytes of each token, by id; b"" for special and unused tokens
    tokens: list[bytes]
    #: special tokens and their names; they are never text
    special_names: dict[int, str] = field(default_factory=dict)
    #: the tokens that end a text; the tokenizer's own end token comes first, if it is among them
    eos: tuple[int, ...] = ()
    bos: int | None = None
    pad: int | None = None
    unk: int | None = None
    #: width of the logits, at least ``len(tokens)``; ids beyond `tokens` are unused
    vocab_size: int = 0
    name: str = ""
    tokenizer: TokenizerBlob = field(default_factory=TokenizerBlob)
    #: what the model's chat template writes between messages: `Turns.to_bytes`; empty if it is not known
    turns: bytes = b""

    def __post_init__(self) -> None:
        if not self.vocab_size:
            object.__setattr__(self, "vocab_size", len(self.tokens))
        size = self.vocab_size
        if size < max(1, len(self.tokens)):
            raise VocabularyError(
                f"vocab_size is {size}, below the number of tokens, {len(self.tokens)}; call Vocabulary.cut"
            )
        for token, label in self.special_names.items():
            if not 0 <= token < size:
                raise VocabularyError(f"special token {label!r} has id {token}, not below {size}")
            if token < len(self.tokens) and self.tokens[token]:
                raise VocabularyError(f"special token {label!r} ({token}) also has bytes; it must have none")
        for token in self.eos:
            if 0 <= token < len(self.tokens) and self.tokens[token]:
                raise VocabularyError(f"the eos token {token} also has bytes; use Vocabulary.ending_with")
        named = {"bos": (self.bos,), "pad": (self.pad,), "unk": (self.unk,), "eos": self.eos}
        for role, ids in named.items():
            for number in ids:
                if number is not None and not 0 <= number < size:
                    raise VocabularyError(
                        f"the {role} token is {number}, not below the vocabulary size {size}"
                    )

    @property
    def special(self) -> frozenset[int]:
        """Ids of the special tokens."""
        return frozenset(self.special_names)

    @property
    def num_known(self) -> int:
        """The number of ids that may be tokens: those from this one on have neither bytes nor a name."""
        return max(len(self.tokens), *(token + 1 for token in self.special_names), 0)

    @property
    def tokenizer_json(self) -> str | None:
        """The tokenizer.json that workers load; None for tokenizers of another kind."""
        return self.tokenizer.data.decode() if self.tokenizer.kind == "tokenizers" else None

    @property
    def text_marks(self) -> frozenset[int]:
        """Added tokens that are text but no blanks, such as `<think>`: tokenizers look for them first."""
        if self.tokenizer_json is None:
            return frozenset()
        start = self.tokenizer_json.index(_ADDED) + len(_ADDED)  # without parsing the rest: megabytes
        added, _ = json.JSONDecoder().raw_decode(self.tokenizer_json, start)
        found = {token["id"] for token in added if not token["special"]} - self.special
        return frozenset(t for t in found if t < len(self.tokens) and len(self.tokens[t].strip()) > 1)

    @cached_property
    def longest_token(self) -> int:
        """Bytes of the longest token or special token's name: no token stands for more characters."""
        names = (name.encode() for name in self.special_names.values())
        return max(len(text) for text in (*self.tokens, *names))

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 (hex) of everything but the name: the same for equal vocabularies on any machine."""
        return fingerprint_of(self.registration())

    def decode(self, tokens: Iterable[int]) -> bytes:
        """Returns the concatenated bytes of tokens. Raises IndexError for ids beyond the vocabulary size."""
        return b"".join(self.token_bytes(token) for token in tokens)

    def token_bytes(self, token: int) -> bytes:
        """Returns a token's bytes, b"" for padding. Raises IndexError for ids beyond the vocabulary size."""
        if not 0 <= token < self.vocab_size:
            raise IndexError(f"token {token} is not below the vocabulary size {self.vocab_size}")
        return self.tokens[token] if token < len(self.tokens) else b""

    def ending_with(self, eos: Iterable[int]) -> Vocabulary:
        """Returns a copy in which these tokens end a text.

        If this vocabulary's first end token is among them, it stays first.
        A token that was text becomes special, because it can no longer occur inside a text.
        Raises VocabularyError for ids beyond the vocabulary size.
        """
        own = self.eos[:1]
        ends = sorted(dict.fromkeys(eos), key=lambda token: token not in own)
        tokens, names = list(self.tokens), dict(self.special_names)
        for token in ends:
            if 0 <= token < len(tokens) and tokens[token]:
                names[token] = tokens[token].decode("utf-8", "replace")
                tokens[token] = b""
        return replace(self, tokens=tokens, special_names=names, eos=tuple(ends))

    def cut(self, vocab_size: int) -> Vocabulary:
        """Returns a copy for logits of this width.

        A larger width adds padding. A smaller one drops the tokens beyond it, which the model can never
        produce.
        """

        def keep(token: int | None) -> int | None:
            return token if token is not None and token < vocab_size else None

        if vocab_size == self.vocab_size:
            return self
        return replace(
            self,
            tokens=self.tokens[:vocab_size],
            special_names={token: label for token, label in self.special_names.items() if token < vocab_size},
            eos=tuple(token for token in self.eos if token < vocab_size),
            bos=keep(self.bos),
            pad=keep(self.pad),
            unk=keep(self.unk),
            vocab_size=vocab_size,
        )

    def registration(self) -> dict[str, Any]:
        """Returns the message that registers the vocabulary at the runtime, ready for msgpack."""
        return {
            "tokens": self.tokens,
            "special": self.special_names,
            "eos": list(self.eos),
            "bos": self.bos,
            "pad": self.pad,
            "unk": self.unk,
            "vocab_size": self.vocab_size,
            "tokenizer_kind": self.tokenizer.kind,
            "tokenizer_data": self.tokenizer.data,
            "turns": self.turns,
        }
