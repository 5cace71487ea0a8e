"""Turns prompts into tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from pyaici.engines.engine import Prompt
    from pyaici.tokens import Vocabulary


def as_prompt(text: str, chat: bool | None, tokenizer: Any) -> Prompt:
    """The text, or a chat that begins with it. `chat` None: if the tokenizer has a template for chats."""
    if chat is None:
        chat = bool(getattr(tokenizer, "chat_template", None))
    return [{"role": "user", "content": text}] if chat else text


def encode_prompt(tokenizer: Any, prompt: Prompt, num_tokens: int) -> list[int]:
    """The tokens of a prompt; texts as the tokenizer encodes them, chats through its chat template.

    `num_tokens`: ids from there on are unknown to the model. Raises ValueError for such ids, and for
    texts where `tokenizer` is None.
    """
    parts = prompt if isinstance(prompt, str) else list(prompt)
    if not parts:
        return []
    if isinstance(parts, str) or isinstance(parts[0], Mapping):
        if tokenizer is None:
            raise ValueError("a prompt of text needs an engine with a tokenizer")
        if isinstance(parts, str):
            return list(tokenizer.encode(parts))
        return list(tokenizer.apply_chat_template(parts, add_generation_prompt=True, return_dict=False))
    tokens = [int(cast("int", token)) for token in parts]
    for token in tokens:
        if not 0 <= token < num_tokens:
            raise ValueError(f"the prompt has token {token}; the model's are below {num_tokens}")
    return tokens


def first_tokens(
    tokenizer: Any, prompt: Prompt, vocabulary: Vocabulary, *, num_tokens: int, max_context: int
) -> list[int]:
    """Returns the first tokens of a request: those of its prompt, or the begin token if that is empty.

    `max_context`: the most tokens that the model takes, the answer included. Raises what `encode_prompt`
    raises, and ValueError where no room is left for an answer.
    """
    tokens = encode_prompt(tokenizer, prompt, num_tokens) or [begin_token(vocabulary)]
    check_room(tokens, max_context)
    return tokens


def check_room(tokens: Sequence[int], max_context: int) -> None:
    """Raises ValueError if a prompt leaves no room for an answer."""
    if len(tokens) >= max_context:
        raise ValueError(
            f"the prompt has {len(tokens)} tokens; the model takes {max_context}, the answer included"
        )


def begin_token(vocabulary: Vocabulary) -> int:
    """Returns the first token of an empty sequence: the begin token, or an end token if there is none."""
    if vocabulary.bos is not None:
        return vocabulary.bos
    return vocabulary.eos[0] if vocabulary.eos else 0
