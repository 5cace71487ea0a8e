"""Encodes prompts as tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from pyaici.engines.engine import Prompt
    from pyaici.tokens import Vocabulary


def as_prompt(text: str, chat: bool | None, tokenizer: Any) -> Prompt:
    """Returns the text, or a chat with the text as the user's message.

    `chat`: None means a chat if the tokenizer has a chat template.
    """
    if chat is None:
        from pyaici.engines.chat_template import template_of  # needs an extra

        chat = bool(template_of(tokenizer))
    return [{"role": "user", "content": text}] if chat else text


def encode_prompt(tokenizer: Any, prompt: Prompt, num_tokens: int, *, special: bool = True) -> list[int]:
    """Returns the tokens of a prompt. The tokenizer encodes texts; its chat template formats chats first.

    `num_tokens`: the model's token ids are below this. `special`: add the special tokens that the model
    expects around a text, such as one at its beginning. Raises ValueError for other ids, and for texts and
    chats if `tokenizer` is None.
    """
    parts = prompt if isinstance(prompt, str) else list(prompt)
    if not parts:
        return []
    if isinstance(parts, str) or isinstance(parts[0], Mapping):
        if tokenizer is None:
            raise ValueError(
                "the prompt is text, but the engine has no tokenizer: give token numbers instead"
            )
        if isinstance(parts, str):
            return list(tokenizer.encode(parts, add_special_tokens=special))
        from pyaici.engines.chat_template import chat_text  # needs an extra

        text = chat_text(tokenizer, cast("Sequence[Mapping[str, Any]]", parts))
        return list(tokenizer.encode(text, add_special_tokens=False))
    tokens = [int(cast("int", token)) for token in parts]
    for token in tokens:
        if not 0 <= token < num_tokens:
            raise ValueError(f"the prompt has token {token}; the model's are below {num_tokens}")
    return tokens


def first_tokens(
    tokenizer: Any, prompt: Prompt, vocabulary: Vocabulary, *, num_tokens: int, max_context: int
) -> list[int]:
    """Returns the first tokens of a request: those of its prompt, or the begin token if the prompt is empty.

    `max_context`: most tokens that the model takes, the answer included. Raises the errors of
    `encode_prompt`, and ValueError if the prompt leaves no room for an answer.
    """
    tokens = encode_prompt(tokenizer, prompt, num_tokens) or [begin_token(vocabulary)]
    check_room(tokens, max_context)
    return tokens


def check_room(tokens: Sequence[int], max_context: int) -> None:
    """Raises ValueError if a prompt leaves no room for an answer."""
    if len(tokens) >= max_context:
        raise ValueError(
            f"the prompt has {len(tokens)} tokens; the model takes {max_context}, prompt and answer together"
        )


def begin_token(vocabulary: Vocabulary) -> int:
    """Returns the first token of an empty sequence.

    The vocabulary's begin token, else its first end token, else token 0.
    """
    if vocabulary.bos is not None:
        return vocabulary.bos
    return vocabulary.eos[0] if vocabulary.eos else 0
